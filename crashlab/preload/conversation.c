/*
 * The two directions of a backend's connection, and the tokens that are under way in it.
 *
 * Queries are numbered in the order in which the client ends them (Query, FunctionCall, Sync); the backend answers
 * each by one ReadyForQuery, in that order. So a number tells which answer is a token's, however many are under way.
 */
#define _GNU_SOURCE
#include "conversation.h"

#include <string.h>

#include "stamps.h"

enum { STARTUP_BYTES_MIN = 8, STARTUP_BYTES_MAX = 10000, MESSAGE_HEAD_BYTES = 5, TOKEN_DIGITS = 19 };
enum { PROTOCOL_MAJOR = 3, SSL_REQUEST = 80877103, GSS_REQUEST = 80877104 };

static const uint64_t TOKEN_MARK = UINT64_C(1000000000000000000);
static const uint64_t TOKEN_CLIENT = UINT64_C(1000000000000);
static const uint64_t TOKEN_CLIENTS = 1000000;

static uint32_t big_endian(const uint8_t bytes[4]) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static size_t less(size_t one, size_t other) { return one < other ? one : other; }

/* ---- tokens under way ---- */

static bool is_under_way(const struct conversation *c, uint32_t client, uint64_t sequence) {
  for (uint32_t i = 0; i < c->tokens_count; i++)
    if (c->tokens[i].sequence == sequence && c->tokens[i].client == client) return true;
  return false;
}

static void found(struct conversation *c, dt_ledger_header *ledger, uint64_t number) {
  struct token token = {.client = (uint32_t)(number / TOKEN_CLIENT % TOKEN_CLIENTS),
                        .sequence = number % TOKEN_CLIENT,
                        .query = c->asked};
  if (token.client == 0 || token.client > ledger->clients || token.sequence == 0) return;
  if (is_under_way(c, token.client, token.sequence)) return;
  /* The data of a COPY come after the query that asked for it. Without one they are ignored: it has failed. */
  bool is_copied = c->in.type == 'd';
  if (is_copied) token.query = c->asked - 1;
  if (!stamp_begin(ledger, &token)) return;
  if (c->tokens_count == TOKENS_MAX || (is_copied && c->asked == c->answered)) {
    stamp_fail(ledger, &token);
    return;
  }
  c->tokens[c->tokens_count++] = token;
}

enum verdict { KEEP, FAIL, ACKNOWLEDGE };

/* Decide on the tokens of the queries `from` to `to`; those that are kept stay in their order. */
static void decide(struct conversation *c, dt_ledger_header *ledger, uint64_t from, uint64_t to, enum verdict verdict) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < c->tokens_count; i++) {
    const struct token token = c->tokens[i];
    if (verdict == KEEP || token.query < from || token.query > to)
      c->tokens[kept++] = token;
    else if (verdict == ACKNOWLEDGE)
      stamp_acknowledge(ledger, &token);
    else
      stamp_fail(ledger, &token);
  }
  c->tokens_count = kept;
}

/* ---- from the client ---- */

static bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

static void end_digits(struct conversation *c, dt_ledger_header *ledger) {
  if (c->digits == TOKEN_DIGITS && c->number / TOKEN_MARK == 7 && !is_letter(c->before)) found(c, ledger, c->number);
  c->digits = 0;
}

static void scan(struct conversation *c, dt_ledger_header *ledger, const char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    unsigned digit = (unsigned)(unsigned char)bytes[i] - '0';
    if (digit > 9) {
      if (c->digits > 0) end_digits(c, ledger);
      c->before = bytes[i];
      continue;
    }
    if (c->digits == 0) c->number = 0;
    /* 19 digits fit into 64 bits; of a longer run only its length matters. */
    if (c->digits < TOKEN_DIGITS) c->number = c->number * 10 + digit;
    if (c->digits <= TOKEN_DIGITS) c->digits++;
  }
}

static void heard_message(struct conversation *c, dt_ledger_header *ledger) {
  end_digits(c, ledger);
  c->before = '\0';
  switch (c->in.type) {
    case 'Q': /* Query */
    case 'F': /* FunctionCall */
    case 'S': /* Sync */
      c->asked_by = c->in.type;
      c->asked++;
      break;
    case 'c': /* CopyDone */
    case 'f': /* CopyFail */
      /* A Sync that was sent along with the query that asked for the data is not answered: the backend ignores it
       * while it waits for them, and the client sends another behind them. */
      if (c->asked_by == 'S' && c->asked > c->answered) c->asked--;
      break;
    default:
      break;
  }
}

static void heard_startup(struct conversation *c) {
  uint32_t bytes = big_endian(c->in.head), code = big_endian(c->in.head + 4);
  if (bytes < STARTUP_BYTES_MIN || bytes > STARTUP_BYTES_MAX) {
    c->phase = PHASE_IGNORED;
  } else if (code >> 16 == PROTOCOL_MAJOR) {
    c->phase = PHASE_MESSAGES;
    c->in.type = '\0';
    c->in.left = bytes - STARTUP_BYTES_MIN;
    c->asked = 1;
  } else if (bytes != STARTUP_BYTES_MIN || (code != SSL_REQUEST && code != GSS_REQUEST)) {
    c->phase = PHASE_IGNORED; /* a request to cancel, or no client of PostgreSQL at all */
  }
}

static void heard_head(struct conversation *c, dt_ledger_header *ledger) {
  c->in.have = 0;
  if (c->phase == PHASE_STARTUP) {
    heard_startup(c);
    return;
  }
  uint32_t bytes = big_endian(c->in.head + 1);
  c->in.type = (char)c->in.head[0];
  if (bytes < 4) {
    c->phase = PHASE_IGNORED; /* the backend ends such a connection */
    return;
  }
  c->in.left = bytes - 4;
  if (c->in.left == 0) heard_message(c, ledger);
}

static bool may_hold_token(char type) { return type == 'Q' || type == 'P' || type == 'B' || type == 'F' || type == 'd'; }

void conversation_hear(struct conversation *c, dt_ledger_header *ledger, const char *bytes, size_t count) {
  while (count > 0 && c->phase != PHASE_IGNORED) {
    size_t taken;
    if (c->in.left == 0) {
      uint32_t wanted = c->phase == PHASE_STARTUP ? STARTUP_BYTES_MIN : MESSAGE_HEAD_BYTES;
      taken = less(count, wanted - c->in.have);
      memcpy(c->in.head + c->in.have, bytes, taken);
      c->in.have += (uint32_t)taken;
      if (c->in.have == wanted) heard_head(c, ledger);
    } else {
      taken = less(count, c->in.left);
      if (may_hold_token(c->in.type)) scan(c, ledger, bytes, taken);
      c->in.left -= (uint32_t)taken;
      if (c->in.left == 0) heard_message(c, ledger);
    }
    bytes += taken;
    count -= taken;
  }
}

/* ---- to the client ---- */

static bool tag_is(const struct conversation *c, const char *tag) {
  size_t bytes = strlen(tag) + 1; /* with the NUL that ends it in the message */
  return c->body_bytes >= bytes && memcmp(c->body, tag, bytes) == 0;
}

/* Such a query has left its token nowhere. */
static bool wrote_no_row(const struct conversation *c) {
  return tag_is(c, "UPDATE 0") || tag_is(c, "INSERT 0 0") || tag_is(c, "DELETE 0");
}

static void said_ready(struct conversation *c, dt_ledger_header *ledger) {
  if (c->answered == c->asked) {
    /* An answer to nothing that was seen: which is whose is lost, so nothing under way may be acknowledged. */
    decide(c, ledger, 0, UINT64_MAX, FAIL);
    return;
  }
  uint64_t query = c->answered++;
  if (!c->completed) decide(c, ledger, query, query, FAIL);
  c->completed = false;
  if (c->body[0] == 'I') decide(c, ledger, 0, query, ACKNOWLEDGE);
}

static void said_message(struct conversation *c, dt_ledger_header *ledger) {
  switch (c->out.type) {
    case 'E': /* ErrorResponse */
      decide(c, ledger, 0, c->answered, FAIL);
      break;
    case 'C': /* CommandComplete */
      if (tag_is(c, "ROLLBACK") || tag_is(c, "PREPARE TRANSACTION"))
        decide(c, ledger, 0, c->answered, FAIL);
      else if (!wrote_no_row(c))
        c->completed = true;
      break;
    case 'Z': /* ReadyForQuery */
      said_ready(c, ledger);
      break;
    default:
      break;
  }
}

static void said_body(struct conversation *c, const char *bytes, size_t count) {
  size_t kept = less(count, TAG_BYTES - c->body_bytes);
  memcpy(c->body + c->body_bytes, bytes, kept);
  c->body_bytes += (uint32_t)kept;
  c->out.left -= (uint32_t)count;
}

static void said_head(struct conversation *c, dt_ledger_header *ledger) {
  uint32_t bytes = big_endian(c->out.head + 1);
  c->out.have = 0;
  c->out.type = (char)c->out.head[0];
  c->body_bytes = 0;
  c->body[0] = '\0';
  if (bytes < 4) {
    decide(c, ledger, 0, UINT64_MAX, FAIL);
    c->phase = PHASE_IGNORED;
    return;
  }
  c->out.left = bytes - 4;
  if (c->out.left == 0) said_message(c, ledger);
}

void conversation_say(struct conversation *c, dt_ledger_header *ledger, const char *bytes, size_t count) {
  if (c->phase == PHASE_STARTUP) {
    /* The answer to a request for encryption is one letter and no message; the client goes on in clear after 'N'. */
    if (count == 1 && (bytes[0] == 'S' || bytes[0] == 'G')) c->phase = PHASE_IGNORED;
    return;
  }
  while (count > 0 && c->phase == PHASE_MESSAGES) {
    size_t taken;
    if (c->out.left == 0) {
      taken = less(count, MESSAGE_HEAD_BYTES - c->out.have);
      memcpy(c->out.head + c->out.have, bytes, taken);
      c->out.have += (uint32_t)taken;
      if (c->out.have == MESSAGE_HEAD_BYTES) said_head(c, ledger);
    } else {
      taken = less(count, c->out.left);
      said_body(c, bytes, taken);
      if (c->out.left == 0) said_message(c, ledger);
    }
    bytes += taken;
    count -= taken;
  }
}
