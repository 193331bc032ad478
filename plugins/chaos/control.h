/* SPDX-License-Identifier: Apache-2.0
 *
 * org.pantheon.chaos.control/1: the hand of a test on the script.
 *
 * Owns the table that get_interface gives under CHAOS_CONTROL. Knows nothing of the engine. The one
 * idea: what a test must bring about at a certain moment (time, a loss, memory of others) it does
 * here, and what it must know afterwards (who is alive, what settled in which order) it reads here.
 *
 * All functions [any]. counts() and events() may be called after shutdown.
 */
#ifndef PLUGINS_CHAOS_CONTROL_H
#define PLUGINS_CHAOS_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CHAOS_CONTROL "org.pantheon.chaos.control/1"

typedef struct chaos_counts {
  uint64_t devices, buffers, programs, queues; /* alive */
  uint64_t device_bytes;                       /* taken of all device heaps */
  uint64_t outstanding;                        /* submits that have not settled */
  uint64_t steps;                              /* RUNs that were executed */
  uint64_t allocations;                        /* buffer_create calls, refused ones too */
  uint64_t hung;                               /* callers that have not returned */
  uint64_t host_faults;                        /* rules of the contract that the host broke */
} chaos_counts;

#define CHAOS_DONE 0u
#define CHAOS_FAILED 1u  /* the submit that failed its queue */
#define CHAOS_DROPPED 2u /* queued behind it, or alive when its queue was destroyed */
#define CHAOS_LOST 3u
typedef struct chaos_event { /* one submit that settled, in the order of settling */
  uint64_t queue, value, time_ns;
  uint32_t outcome;
  uint32_t reserved;
} chaos_event;

typedef struct chaos_control {
  uint32_t struct_size, reserved;
  void (*counts)(chaos_counts* out);
  void (*events)(uint32_t* count, chaos_event* out); /* two calls, as the contract's lists */
  uint64_t (*now)(void);
  void (*advance)(uint64_t ns);  /* the virtual clock; settles what is due */
  void (*allow)(uint64_t steps); /* with by_hand: this many more RUNs may complete */
  void (*lose)(uint32_t die);    /* now, with the die's scope and recovery */
  /* An option, in the middle of it all; 0 when it is unknown or malformed. */
  int (*set)(const char* key, const char* value);
  void (*release)(void); /* lets the calls that hang return */
} chaos_control;

/* The id that tokens: seeded gives a row that sees these tokens. */
int32_t chaos_next(uint64_t seed, const int32_t* seen, uint64_t count, uint32_t vocab);

#ifdef __cplusplus
}
#endif
#endif
