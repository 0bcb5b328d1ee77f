// The driver's functions for streams and events.
#pragma once

#include "work.h"

static CUresult cuStreamCreate(CUstream *out, unsigned flags) {
  ENTER(true);
  REQUIRE(flags <= 1, INVALID_VALUE);
  *out = calloc(1, sizeof **out);
  (*out)->flags = flags;
  add(STREAM, *out, sizeof **out);
  return leave(SUCCESS);
}

static CUresult cuStreamDestroy(CUstream s) {
  ENTER(true);
  struct object *o = exactly(STREAM, s);
  REQUIRE(o != NULL, INVALID_HANDLE);
  run_until(s, s->length);
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuStreamSynchronize(CUstream s) {
  ENTER(true);
  REQUIRE(s && is_stream(s), INVALID_HANDLE);
  if (slow) {
    waiting++;
    pthread_mutex_unlock(&lock);
    usleep(1000u * (unsigned)slow);
    pthread_mutex_lock(&lock);
    waiting--;
    REQUIRE(is_stream(s), INVALID_HANDLE);
  }
  run_until(s, s->length);
  return leave(SUCCESS);
}

static CUresult cuStreamQuery(CUstream s) {
  ENTER(true);
  REQUIRE(s && is_stream(s), INVALID_HANDLE);
  return leave(s->done == s->length ? SUCCESS : NOT_READY);
}

static CUresult cuStreamWaitEvent(CUstream s, CUevent event, unsigned flags) {
  ENTER(true);
  REQUIRE(is_stream(s) && exactly(EVENT, event) && !flags, INVALID_HANDLE);
  if (event->recorded && event->stream) {
    put(s, (struct operation){.type = WAIT, .stream = event->stream, .until = event->at + 1});
  }
  return leave(SUCCESS);
}

static CUresult cuEventCreate(CUevent *out, unsigned flags) {
  ENTER(true);
  REQUIRE(flags <= 3, INVALID_VALUE);
  *out = calloc(1, sizeof **out);
  (*out)->flags = flags;
  add(EVENT, *out, sizeof **out);
  return leave(SUCCESS);
}

static CUresult cuEventDestroy(CUevent event) {
  ENTER(true);
  struct object *o = exactly(EVENT, event);
  REQUIRE(o != NULL, INVALID_HANDLE);
  o->alive = false;
  return leave(SUCCESS);
}

static CUresult cuEventRecord(CUevent event, CUstream s) {
  ENTER(true);
  REQUIRE(exactly(EVENT, event) && is_stream(s), INVALID_HANDLE);
  event->recorded = true;
  event->reached = false;
  event->stream = s;
  event->at = s ? s->length : 0;
  put(s, (struct operation){.type = RECORD, .event = event});
  return leave(SUCCESS);
}

static CUresult cuEventSynchronize(CUevent event) {
  ENTER(true);
  REQUIRE(exactly(EVENT, event), INVALID_HANDLE);
  if (event->recorded && event->stream) run_until(event->stream, event->at + 1);
  return leave(SUCCESS);
}

static CUresult cuEventQuery(CUevent event) {
  ENTER(true);
  REQUIRE(exactly(EVENT, event), INVALID_HANDLE);
  return leave(!event->recorded || event->reached ? SUCCESS : NOT_READY);
}

static CUresult cuEventElapsedTime(float *out, CUevent start, CUevent end) {
  ENTER(true);
  REQUIRE(exactly(EVENT, start) && exactly(EVENT, end), INVALID_HANDLE);
  if (((start->flags | end->flags) & 2) || !start->recorded || !end->recorded) {
    return leave(INVALID_HANDLE);
  }
  if (!start->reached || !end->reached) return leave(NOT_READY);
  *out = (float)(end->time - start->time);
  return leave(SUCCESS);
}
