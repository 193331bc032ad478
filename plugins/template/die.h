/* SPDX-License-Identifier: MIT
 *
 * backend_template, shared by its files: what a die is, and the kernels of the table in plugin.c.
 */
#ifndef TEMPLATE_DIE_H
#define TEMPLATE_DIE_H

#include <pantheon/oploop.h>

struct die {
  const char* error; /* of the last call that failed; a literal */
};

/* kernels.c */
pn_status die_copy(void* die, const pn_k_copy* k);
pn_status die_embed(void* die, const pn_k_embed* k);
pn_status die_norm(void* die, const pn_k_norm* k);
pn_status die_matmul(void* die, const pn_k_matmul* k);
pn_status die_glu(void* die, const pn_k_glu* k);
pn_status die_binary(void* die, const pn_k_binary* k);
pn_status die_gather(void* die, const pn_k_gather* k);
pn_status die_columns(void* die, const pn_k_columns* k);
pn_status die_choose(void* die, const pn_k_choose* k);

/* attention.c */
pn_status die_rope(void* die, const pn_k_rope* k);
pn_status die_append(void* die, const pn_k_append* k);
pn_status die_attention(void* die, const pn_k_attention* k);

#endif
