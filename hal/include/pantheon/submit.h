/* SPDX-License-Identifier: MIT
 *
 * Commands, submits, queues and their progress.
 */
#ifndef PANTHEON_SUBMIT_H
#define PANTHEON_SUBMIT_H

#include <pantheon/step.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PN_CMD_COPY   1u /* equal bytes; heaps of this die, host heaps, or over a peer edge */
#define PN_CMD_RUN    2u /* READY program at shape with steps[step]; a program stays on one queue */
#define PN_CMD_SAMPLE 3u /* draws rows that the last RUN of program held, before its next RUN;
                            steps[step] has rows only, in that RUN's entry numbers */

typedef struct pn_command { /* FROZEN */
  uint32_t   kind;
  uint32_t   flags;
  pn_program program;
  uint32_t   shape;        /* index into the plan's shapes: the host picks the smallest that fits */
  uint32_t   step;         /* index into pn_submit.steps */
  pn_slice   source;
  pn_slice   target;
  uint64_t   reserved;
} pn_command; PN_PIN(pn_command, 80);

/* Every wait must already be submitted (same plugin), so no queue ever waits for a host that may
 * not come; the host submits later instead. A failed wait fails the waiter. Commands keep order. */
typedef struct pn_submit {
  uint32_t struct_size;
  uint32_t wait_count;
  uint32_t command_count;
  uint32_t step_count;
  uint64_t value;          /* greater than the queue's last; complete when all commands are */
  const pn_point   *waits;
  const pn_command *commands;
  const pn_step    *steps;
} pn_submit; PN_PIN(pn_submit, 48);

#define PN_QUEUE_RUN      0u /* runs and copies */
#define PN_QUEUE_TRANSFER 1u /* copies beside runs: loading, swapping */
#define PN_QUEUE_OK       0u
#define PN_QUEUE_FAILED   1u /* completed stays at the last good value; later results: undefined */
#define PN_QUEUE_LOST     2u /* and the scope of queue_error is lost */
typedef struct pn_progress { /* FROZEN */
  uint64_t completed;
  uint32_t state;
  uint32_t reserved;
} pn_progress; PN_PIN(pn_progress, 16);

#ifdef __cplusplus
}
#endif
#endif
