/*
 * Stamping entries of the ledger for clients that do not do it themselves.
 */
#define _GNU_SOURCE
#include "stamps.h"

static dt_ledger_entry *entry_of(dt_ledger_header *ledger, const struct token *token) {
  return dt_ledger_entries(ledger, token->client - 1) + (token->sequence - 1);
}

static void open_entry(dt_ledger_entry *entry, uint64_t position, uint64_t ns, uint32_t status) {
  entry->begin_position = position;
  entry->begin_ns = ns;
  if (entry->kind == 0) entry->kind = DT_KIND_INSERT;
  __atomic_store_n(&entry->status, status, __ATOMIC_RELEASE);
}

bool stamp_begin(dt_ledger_header *ledger, struct token *token) {
  if (token->sequence > ledger->capacity) {
    dt_ledger_ask_stop(ledger, DT_STOP_LEDGER_FULL);
    return false;
  }
  dt_ledger_client *client = dt_ledger_client_of(ledger, token->client - 1);
  dt_ledger_entry *entry = entry_of(ledger, token);
  uint64_t count = __atomic_load_n(&client->count, __ATOMIC_ACQUIRE);
  if (token->sequence <= count) {
    if (__atomic_load_n(&entry->status, __ATOMIC_ACQUIRE) == DT_STATUS_ACKNOWLEDGED) return false;
    __atomic_store_n(&entry->status, (uint32_t)DT_STATUS_BEGUN, __ATOMIC_RELEASE);
    return true;
  }
  token->counts = entry->kind == 0;
  uint64_t position = dt_ledger_position(ledger), ns = dt_monotonic_ns();
  for (uint64_t skipped = count; skipped < token->sequence - 1; skipped++)
    open_entry(dt_ledger_entries(ledger, token->client - 1) + skipped, position, ns, DT_STATUS_FAILED);
  open_entry(entry, position, ns, DT_STATUS_BEGUN);
  /* One connection of a client after the other: the count only grows. */
  __atomic_store_n(&client->count, token->sequence, __ATOMIC_RELEASE);
  return true;
}

static void count_operation(dt_ledger_header *ledger, const struct token *token) {
  if (token->counts) dt_ledger_count_operation(dt_ledger_client_of(ledger, token->client - 1));
}

void stamp_acknowledge(dt_ledger_header *ledger, const struct token *token) {
  dt_ledger_acknowledge(ledger, entry_of(ledger, token));
  count_operation(ledger, token);
}

void stamp_fail(dt_ledger_header *ledger, const struct token *token) {
  dt_ledger_fail(entry_of(ledger, token));
  count_operation(ledger, token);
}
