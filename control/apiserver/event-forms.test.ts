import assert from "node:assert/strict";
import { test } from "node:test";
import { eventFormOf, resumptionOf } from "./event-forms.ts";

test("the form follows Accept; whoever asks for anything else gets the bytes", () => {
  const formOf = (accept?: string) => eventFormOf(accept === undefined ? {} : { accept })?.mediaType;
  assert.equal(formOf("text/event-stream"), "text/event-stream");
  assert.equal(formOf("application/json, application/x-ndjson;q=0.9"), "application/x-ndjson");
  assert.equal(formOf("Text/Event-Stream"), "text/event-stream");
  for (const accept of [undefined, "", "*/*", "application/octet-stream"]) assert.equal(formOf(accept), undefined);
});

test("an event says what it is and where to go on after it, on one line each", () => {
  const form = eventFormOf({ accept: "text/event-stream" });
  assert.equal(
    form?.encode({ offset: 3, data: "a\nb" }, 6),
    'event: data\nid: 6\ndata: {"offset":3,"data":"a\\nb"}\n\n',
  );
  assert.equal(form?.encode({ error: {} }, undefined), 'event: error\ndata: {"error":{}}\n\n');
});

test("Last-Event-ID is an offset or refused by name", () => {
  assert.equal(resumptionOf({}), undefined);
  assert.equal(resumptionOf({ "last-event-id": "12" }), 12);
  for (const id of ["", "-1", "x", "1e3", "9".repeat(30)]) {
    assert.throws(() => resumptionOf({ "last-event-id": id }), { kind: "InvalidArgument" });
  }
});
