/* SPDX-License-Identifier: Apache-2.0
 *
 * backend_mutants: its note, its entry, its option. Variants that need another binary (a missing
 * note, an extra symbol, relocations in code) are compiled from this file with a macro.
 */
#include <pantheon/note.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutants.h"

#ifndef MUTANT_NO_NOTE
PN_TEST_PLUGIN_NOTE("mutants", "", PN_VERSION, "Pantheon", "");
#endif
#ifdef MUTANT_EXPORTS
__attribute__((visibility("default"))) int mutant_exported;
int mutant_exported = 1;
#endif
#ifdef MUTANT_GNU_UNIQUE
__asm__(
    ".data\n.globl mutant_unique\n.type mutant_unique,@gnu_unique_object\n"
    ".size mutant_unique,8\nmutant_unique:\n.quad 0\n.text\n");
#endif
#ifdef MUTANT_TEXT_RELOCATIONS
__asm__(".text\n.quad pantheon_plugin_entry_1\n");
#endif

static const char* const names[] = {
#include "names.h"
};

const pn_plugin* real;
const pn_host* mutants_host;
static const char* active;
static pn_loop_backend backend;
static pn_plugin table;

int mutant(const char* name) { return active != NULL && strcmp(active, name) == 0; }

static uint32_t serves(void* self, uint32_t tag) {
  (void)self;
  (void)tag;
  return 1;
}

static pn_status set(const char* name, pn_error* err) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (strcmp(names[i], name) != 0) continue;
    active = names[i];
    return PN_OK;
  }
  return pn_loop_fail(err, PN_INVALID, "option mutant: %s is not in mutants.list", name);
}

/* The host without what concerns defects only; it lives as long as the process. */
static pn_host* own_host(const pn_host* host, pn_error* err, pn_status* status) {
  static pn_pair kept[16];
  static pn_host mine;
  *status = PN_OK;
  active = NULL;
  memcpy(&mine, host, sizeof mine < host->struct_size ? sizeof mine : host->struct_size);
  mine.config = kept;
  mine.config_count = 0;
  for (uint32_t i = 0; i < host->config_count && mine.config_count < 16; ++i) {
    if (strcmp(host->config[i].key, "mutant") == 0)
      *status = set(host->config[i].value, err);
    else
      kept[mine.config_count++] = host->config[i];
    if (*status != PN_OK) return NULL;
  }
  if (mutant("option_unknown_taken")) mine.config_count = 0;
  if (mutant("minor_ignored")) mine.abi_minor = PN_ABI_MINOR;
  if (mutant("host_tail_ignored")) mine.struct_size = sizeof mine;
  if (mutant("serving_thread_blocked")) mine.thread_check = serves;
  return &mine;
}

pn_status pantheon_plugin_entry_1(const pn_host* host, const pn_plugin** out, pn_error* err) {
  pn_status status;
  if (host == NULL || out == NULL) return pn_loop_entry(&template_backend, host, out, err);
  pn_host* mine = own_host(host, err, &status);
  if (mine == NULL) return status;
  /* What it was given, where nothing had to be changed: a longer pn_host keeps its tail. */
  const pn_host* told = mine;
  static unsigned char longer[4096];
  if (host->struct_size > sizeof *mine && host->struct_size <= sizeof longer &&
      !mutant("host_tail_ignored")) {
    memcpy(longer, host, host->struct_size);
    memcpy(longer, mine, sizeof *mine);
    told = (const pn_host*)(const void*)longer;
  }
  mutants_host = told;
  backend = template_backend;
  backend.name = "mutants";
  mutate_kernels(&backend);
  static char variable[] = "PN_MUTANT=1";
  if (mutant("environment_changed") && environ[0] != NULL) environ[0] = variable;
  status = pn_loop_entry(&backend, told, &real, err);
  if (status != PN_OK) return status;
  table = *real;
  mutate_table(&table);
  mutate_submit(&table);
  mutate_queues(&table);
  *out = &table;
  return PN_OK;
}
