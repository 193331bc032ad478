/* SPDX-License-Identifier: MIT
 *
 * The pantheon HAL: what a server and a backend plugin say to each other.
 * The one idea: the engine owns memory, lanes and page numbers; the plugin owns the meaning of
 * bytes. The engine buys buffers, binds slices of them to a compiled program once, and then sends
 * one small step after another. Nothing in a step is an address that a captured graph would have to
 * patch: lanes, pages and states are numbers, and sampled ids stay where the next step reads them.
 *
 *   device   one die. Has heaps.
 *   buffer   bytes in one heap; a slice is a part of one.
 *   program  a plan (ops over slots) compiled for a list of shapes, bound to slices.
 *   queue    runs submits in order. It is its own timeline: completed value n means all up to n.
 *   step     what one run needs: entries (who advances), tokens, page edits, rows (what comes out).
 *
 * Thread tags. [load] one thread, before serving. [control] one thread per device. [queue] one
 * thread per queue. [poll] concurrent, does not block, allocate, or take a lock that a submitter
 * can hold. [any] concurrent. [pure] no device, no state, deterministic, concurrent.
 *
 * Rules that hold everywhere:
 *   Arguments are borrowed: nothing passed in is kept after return, plans and steps included.
 *   Arrays of growable structs are walked by the caller's struct_size (PN_AT); structs marked
 *   FROZEN have none and never change within a major.
 *   Growing in: a plugin given a struct longer than it knows accepts it only when the unknown tail
 *   is all zero (pn_read), else PN_UNSUPPORTED naming the struct. A meaning is never ignored.
 *   Growing out (pn_write): fields that both know, the rest of the caller's bytes zero.
 *   Unknown flag bits and non-zero reserved words in: PN_INVALID. Unknown flag bits out: ignored.
 *   Lists use two calls: count 0 asks for the count (PN_OK); a count that is too small gets as
 *   many as fit, the true count, and PN_INCOMPLETE.
 *   Text is UTF-8, ends with NUL, and fits its field.
 *   Errors may be NULL. PN_INVALID, PN_UNSUPPORTED and PN_OUT_OF_MEMORY mean that nothing changed.
 *   No pointer crosses in a command, so a plugin may live in another process.
 */
#ifndef PANTHEON_HAL_H
#define PANTHEON_HAL_H

#include <pantheon/core.h>
#include <pantheon/device.h>
#include <pantheon/plan.h>
#include <pantheon/ops.h>
#include <pantheon/program.h>
#include <pantheon/step.h>
#include <pantheon/submit.h>
#include <pantheon/plugin.h>

#endif
