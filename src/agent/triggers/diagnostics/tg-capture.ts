import { CAPTURE_EVENT, TgCapture, type CaptureAnswer } from "../../../protocol/triggers/capture.ts";
import type { PacketCapture, PacketCaptureOptions } from "../tools/packet-capture.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Captures of this node; their code is loaded on the first request. */
export interface Captures {
  handle(request: TgCapture, user: string, signal: AbortSignal): Promise<CaptureAnswer>;
  /** Stops the running capture and publishes its files. */
  close(): Promise<void>;
}

export function openCaptures(options: PacketCaptureOptions): Captures {
  let opened: Promise<PacketCapture> | undefined;
  const open = (): Promise<PacketCapture> => {
    opened ??= import("../tools/packet-capture.ts").then(({ PacketCapture }) => new PacketCapture(options));
    return opened;
  };
  return {
    async handle(request, user, signal) {
      const capture = await open();
      switch (request.action) {
        case "start":
          return capture.start(request, user, signal);
        case "stop":
          return capture.stop(signal);
        case "status":
          return capture.status(signal);
      }
    },
    close: async () => (await opened)?.close(),
  };
}

/**
 * Starts and stops a capture of whole packets into data store files, and returns its state. The capture outlives its caller and the
 * session, and stops with the agent.
 */
export function tgCapture(captures: Pick<Captures, "handle">): OneShotTrigger<TgCapture> {
  return {
    event: CAPTURE_EVENT,
    kind: "one-shot",
    request: TgCapture,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: false,
    isReadOnly: ({ action }) => action === "status",
    isRemedy: ({ action }) => action === "stop",
    agents: false,
    handle: (request, { user, signal }) => captures.handle(request, user, signal),
  };
}
