/*
 * The entries of the ledger that tokens stand for (docs/formats.md, "The ledger").
 *
 * A client that fills register, checksum and kind of its next entry before it sends keeps what it filled. Where kind
 * is 0 nobody did: the entry becomes an insert, and the client's operations are counted here as they are answered.
 */
#ifndef DURATUNE_STAMPS_H
#define DURATUNE_STAMPS_H

#include "conversation.h"

/*
 * Begin the token's entry and publish its number. Numbers that were skipped, which no backend has received, become
 * failed entries that begin here. A failed entry whose token comes again is under way again, from its first begin.
 * Returns whether the token's end is to be stamped: not if it was acknowledged before, nor if the ledger has no entry
 * for it; then the clients are asked to stop.
 */
bool stamp_begin(dt_ledger_header *ledger, struct token *token);
void stamp_acknowledge(dt_ledger_header *ledger, const struct token *token);
void stamp_fail(dt_ledger_header *ledger, const struct token *token);

#endif
