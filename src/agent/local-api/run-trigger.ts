import { LOCAL_REPLY_LIMITS } from "../../protocol/local/api.ts";
import type { TriggerLine } from "../../protocol/local/answers.ts";
import type { Dispatcher } from "../triggers/execution/dispatch.ts";
import type { TriggerChannel } from "../triggers/execution/trigger.ts";
import { Feed } from "./feed.ts";

/** Runs a trigger for a caller on this machine. Yields its output as it arrives, then its result. */
export async function* runLocally(
  dispatcher: Dispatcher,
  event: string,
  body: unknown,
  signal: AbortSignal,
  wait = false,
): AsyncGenerator<TriggerLine> {
  const feed = new Feed<TriggerLine>();
  const channel: TriggerChannel = {
    signal,
    progress: ({ seq, kind, data }) => feed.push({ kind: "progress", seq, channel: kind, data }),
    ready: () => feed.room(),
    replyLimits: { maxBytes: LOCAL_REPLY_LIMITS.maxBytes - 1024, maxDepth: LOCAL_REPLY_LIMITS.maxDepth - 2 },
    result: (_id, reply) => {
      feed.end("body" in reply ? { kind: "result", body: reply.body } : { kind: "error", ...reply.error });
      return Promise.resolve();
    },
  };
  const { id, reply } = dispatcher.runLocal({ event, body, wait }, channel);
  const cancel = (): void => dispatcher.cancel(id);
  signal.addEventListener("abort", cancel, { once: true });
  void reply.then((answer) => {
    // `true` means that the output follows as progress and the answer comes through the channel.
    if ("body" in answer && (wait || answer.body !== true)) feed.end({ kind: "result", body: answer.body });
    else if ("error" in answer) feed.end({ kind: "error", ...answer.error });
  });
  try {
    yield* feed;
  } finally {
    signal.removeEventListener("abort", cancel);
    feed.end();
    cancel();
  }
}
