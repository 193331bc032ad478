/* SPDX-License-Identifier: MIT
 *
 * The HAL, core: growth rules, status, errors, handles. Every other header includes this one;
 * <pantheon/hal.h> states the rules that hold everywhere.
 */
#ifndef PANTHEON_CORE_H
#define PANTHEON_CORE_H

#include <stddef.h>
#include <stdint.h>

#if !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the pantheon HAL ABI is defined for LP64 little-endian targets only"
#endif

#ifdef __cplusplus
extern "C" {
#define PN_STATIC_ASSERT static_assert
#else
#define PN_STATIC_ASSERT _Static_assert
#endif

/* Plain numbers: the ELF note spells them. */
#define PN_ABI_MAJOR 0
#ifndef PN_ABI_MINOR
#define PN_ABI_MINOR 2
#endif

#define PN_PIN(T, bytes) \
  PN_STATIC_ASSERT(sizeof(T) == (bytes) && (bytes) % 8 == 0, #T ": released size is frozen")
#define PN_HAS(p, T, field) \
  ((p)->struct_size >= offsetof(T, field) + sizeof(((T *)0)->field))
#define PN_AT(T, base, i) \
  ((T *)(void *)((char *)(void *)(base) + (uint64_t)(i) * (base)->struct_size))
#define PN_AT_CONST(T, base, i) \
  ((const T *)(const void *)((const char *)(base) + (uint64_t)(i) * (base)->struct_size))

/* Copies an input struct into today's, absent fields zero. 0 when it is shorter than its frozen
 * first size or says something past what this side knows: then PN_UNSUPPORTED, never half an
 * understanding. */
static inline int pn_read(void *to, uint32_t known_size, const void *from, uint32_t min_size) {
  unsigned char *t = (unsigned char *)to;
  const unsigned char *f = (const unsigned char *)from;
  uint32_t i, size = *(const uint32_t *)from;
  if (size < min_size || size % 8 != 0) return 0;
  for (i = 0; i < known_size; ++i) t[i] = i < size ? f[i] : 0;
  for (i = known_size; i < size; ++i)
    if (f[i] != 0) return 0;
  *(uint32_t *)to = known_size;
  return 1;
}

/* Writes what both sides know of an out struct, zeroes the rest, keeps the caller's struct_size. */
static inline void pn_write(void *to, const void *from, uint32_t known_size) {
  unsigned char *t = (unsigned char *)to;
  const unsigned char *f = (const unsigned char *)from;
  uint32_t i, size = *(const uint32_t *)to;
  for (i = 4; i < size; ++i) t[i] = i < known_size ? f[i] : 0;
}

/* ---- status and errors ---------------------------------------------------------------------- */
typedef int32_t pn_status;    /* 0 ok; negative failed; positive not an error */
#define PN_OK              0
#define PN_NOT_READY       1  /* try again later: queue full, still building, not yet complete */
#define PN_INCOMPLETE      2  /* the list was longer than the count given */
#define PN_INVALID       (-1)
#define PN_UNSUPPORTED   (-2)
#define PN_OUT_OF_MEMORY (-3)
#define PN_DEVICE_LOST   (-4) /* sticky for all in scope; destroy and close still work */
#define PN_FAILED        (-5) /* the driver, a file, a compiler; native_code says more */

/* scope: who else is hit by an error */
#define PN_SCOPE_CALL         0u
#define PN_SCOPE_PROGRAM      1u
#define PN_SCOPE_QUEUE        2u
#define PN_SCOPE_DEVICE       3u
#define PN_SCOPE_RESET_DOMAIN 4u
#define PN_SCOPE_PLUGIN       5u
/* recovery: the smallest act after which work can go on */
#define PN_RECOVER_NONE            0u
#define PN_RECOVER_RETRY_LATER     1u
#define PN_RECOVER_REOPEN_DEVICE   2u
#define PN_RECOVER_RESET_DOMAIN    3u
#define PN_RECOVER_RESTART_PROCESS 4u
#define PN_RECOVER_OPERATOR        5u

typedef struct pn_error { /* caller-owned */
  uint32_t struct_size;
  int32_t  code;          /* pn_status */
  uint32_t scope;
  uint32_t recovery;
  int64_t  native_code;
  char     message[232];  /* what was asked, what was found, what would work */
} pn_error; PN_PIN(pn_error, 256);

/* ---- handles -------------------------------------------------------------------------------- */
/* Integers in distinct types, unique within a plugin over all its devices, so that commands, peer
 * copies and waits can name another die's objects and a proxy can pass them on. id 0 is none. */
typedef struct pn_device  { uint64_t id; } pn_device;
typedef struct pn_buffer  { uint64_t id; } pn_buffer;
typedef struct pn_program { uint64_t id; } pn_program;
typedef struct pn_queue   { uint64_t id; } pn_queue;

typedef struct pn_slice { /* FROZEN */
  pn_buffer buffer;
  uint64_t  offset;       /* bytes */
  uint64_t  bytes;
} pn_slice; PN_PIN(pn_slice, 24);
typedef struct pn_point { /* FROZEN. A moment: queue has completed value */
  pn_queue queue;
  uint64_t value;
} pn_point; PN_PIN(pn_point, 16);

/* FROZEN. Text options and lists */
typedef struct pn_pair { const char *key; const char *value; } pn_pair; PN_PIN(pn_pair, 16);

#ifdef __cplusplus
}
#endif
#endif
