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
 * Rules that hold everywhere, who checks them, and what a breach leads to. "host" is the loader or
 * wrapper, "plugin" every plugin (null shows how), "abi" the tests of tests/abi, "review" a person.
 *
 *  R1  Arguments are borrowed: nothing passed in is kept after return, plans and steps included.
 *      review; reading freed memory.
 *  R2  Memory never changes owner: results land in the caller's structs, or in handles that have a
 *      destroy function. No allocator crosses. review; two heaps meet.
 *  R3  Every struct begins with struct_size, but for those marked FROZEN, which never change within
 *      a major. Sizes are multiples of 8 without hidden padding. abi; the build fails.
 *  R4  Arrays of growable structs are walked by the caller's struct_size (PN_AT), never by sizeof.
 *      abi; elements after the first would be read at wrong places.
 *  R5  Growing in: a plugin given a struct longer than it knows takes it only when the unknown tail
 *      is all zero (pn_read), else PN_UNSUPPORTED naming the struct. A meaning is never ignored.
 *      plugin, abi.
 *  R6  Growing out (pn_write): the fields that both know are written, the rest of the caller's
 *      bytes become zero, struct_size stays the caller's. plugin, abi.
 *  R7  Unknown flag bits, commands, options and non-zero reserved words in: PN_INVALID or
 *      PN_UNSUPPORTED by name. Unknown flag bits out: ignored. plugin.
 *  R8  Lists use two calls: count 0 asks for the count (PN_OK); a count that is too small gets as
 *      many as fit, the true count, and PN_INCOMPLETE. host.
 *  R9  Text is UTF-8, ends with NUL, and fits its field. host cuts.
 *  R10 Errors may be NULL. PN_INVALID, PN_UNSUPPORTED and PN_OUT_OF_MEMORY mean that nothing
 *      changed. plugin.
 *  R11 Device loss is sticky: every later call in its scope says PN_DEVICE_LOST, outstanding work
 *      settles within lost_settle_ms, destroy and close still work. plugin; the host stops serving
 *      what the scope covers.
 *  R12 No pointer crosses in a command or step, so a plugin may live in another process. review.
 *  R13 A plugin never prints, aborts, exits, throws across a slot, changes signal masks, floating
 *      point modes, locale, environment or working directory. host probes a file that it has not
 *      seen before in a child process; then review.
 *  R14 Threads of a plugin have names and end in shutdown. host; the end of the process waits.
 *  R15 One symbol leaves the library; drivers are opened at run time, not linked. abi.
 *  R16 Both speak the older minor; while the major is 0 they must agree. host refuses, naming both.
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
