import { InputError } from "../../../errors.ts";
import { JsonObject } from "../../../protocol/values/values.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Refuses the event: a terminal has no single reply. The error says how to open one. */
export function containerExecHint(): OneShotTrigger<JsonObject> {
  return {
    event: "container-exec",
    kind: "one-shot",
    request: JsonObject,
    deadlineMs: 1000,
    needsDataPlane: false,
    readOnly: true,
    agents: false,
    handle: () =>
      Promise.reject(
        new InputError(
          "not-supported",
          "container-exec is a terminal: open a WebSocket on the same path, with container, cols and rows as its query; " +
            "on the node itself use 'holdfast containers exec'",
        ),
      ),
  };
}
