import type { Logger } from "pino";
import type { Clock } from "../../host/clock.ts";
import type { Dialler } from "../../host/net/dial.ts";
import type { Compute } from "../containers/model/compute.ts";
import { streamTransport } from "../session/stream-transport.ts";
import { containerExec } from "../streams/container-exec.ts";
import { Streams, type StreamsOptions } from "../streams/streams.ts";

export interface OpenStreamsOptions extends Pick<StreamsOptions, "node"> {
  readonly clock: Clock;
  readonly log: Logger;
  /** The dialler of the session. */
  readonly dialler: Dialler;
  readonly compute: () => Compute | undefined;
}

/** Opens the streams of this node, with every kind that it has. */
export function openStreams(
  { clock, log, dialler, compute, node }: OpenStreamsOptions,
  stack: AsyncDisposableStack,
): Streams {
  const streams = new Streams({
    clock,
    log: log.child({ component: "streams" }),
    kinds: [containerExec(compute)],
    dial: streamTransport(dialler, () => clock.now()),
    node,
  });
  stack.defer(() => streams.close());
  return streams;
}
