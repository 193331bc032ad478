/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants, shared by its files: which defect is on, and where each kind of them sits.
 *
 * The plugin is the template's kernels over the op-loop. The option `mutant` switches on one defect
 * of mutants.list; without it the plugin is correct. The one idea: nothing of the op-loop knows of
 * defects. They sit in kernels put before the real ones (kernels.c), in table functions put before
 * the real ones (table.c, submit.c, queue.c), and in functions of the op-loop that the linker wraps
 * (loop.c).
 */
#ifndef PLUGINS_MUTANTS_H
#define PLUGINS_MUTANTS_H

#include <pantheon/layout.h>
#include <pantheon/oploop.h>
#include <pantheon/sampler.h>

extern const pn_loop_backend template_backend;

/* The defect of this name is on. */
int mutant(const char* name);

/* kernels.c: puts wrong kernels into the backend. */
void mutate_kernels(pn_loop_backend* backend);

/* table.c, submit.c, queue.c: the real table, and wrong functions before it. */
extern const pn_plugin* real;
extern const pn_host* mutants_host;
void mutate_table(pn_plugin* table);
void mutate_submit(pn_plugin* table);
void mutate_queues(pn_plugin* table);
/* A submit without commands: what was refused counts as done. */
pn_status pretend_done(pn_queue queue, const pn_submit* submit);
void note_submitted(pn_queue queue, uint64_t value);
uint64_t last_submitted(pn_queue queue);

#endif
