import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { countHalfOpen } from "../../host/network/ip/sockets.ts";
import { watchNetwork, type NetworkWatch } from "../../host/network/network-watch.ts";
import type { Overlay } from "../../host/overlay/client.ts";
import type { Reader } from "../../host/reader.ts";
import { reportedLinks } from "../shadow/facts.ts";
import { readMachine } from "../shadow/readings.ts";
import { startLinkMonitor } from "../telemetry/conditions/link-health.ts";
import type { EventLog } from "../telemetry/events.ts";
import { reportClock, type KnownTime } from "../telemetry/known-time.ts";
import { createSampler, startSampling } from "../telemetry/metrics/metrics.ts";
import type { Pusher } from "../telemetry/pusher.ts";
import type { Spool } from "../telemetry/spool.ts";
import type { ContainersView } from "./containers/view.ts";
import type { NetworkView } from "./network-view.ts";
import type { OpenedOverlay } from "./overlay.ts";
import type { AgentSignals } from "./signals.ts";

export interface OpenMachineOptions {
  readonly clock: Clock;
  /** The clock that stamps samples. */
  readonly stamps: Clock;
  readonly reader: Reader;
  readonly log: Logger;
  readonly events: EventLog;
  readonly time: KnownTime;
  readonly spool: Spool;
  readonly pusher: Pusher;
  readonly networkView: Pick<NetworkView, "managedLinks">;
  readonly dataPlane: Pick<OpenedOverlay, "sample">;
  readonly overlay: Pick<Overlay, "wake">;
  readonly containers: Pick<ContainersView, "sample">;
  readonly signals: Pick<AgentSignals, "facts" | "session" | "surroundings">;
  readonly stopping: AbortSignal;
}

/** Watches links and the network, and samples the metrics every minute. */
export function openMachine(options: OpenMachineOptions, stack: AsyncDisposableStack): Pick<NetworkWatch, "engine"> {
  const { clock, stamps, reader, log, events, time, spool, pusher, networkView, overlay, signals } = options;
  const links = startLinkMonitor({
    clock,
    events,
    read: () => {
      const machine = readMachine(reader, clock);
      return {
        links: reportedLinks({ ...machine, managed: networkView.managedLinks() }),
        addresses: machine.addresses,
      };
    },
  });
  stack.defer(() => links.close());
  const network = watchNetwork({
    clock,
    reader,
    onChange: (cause) => {
      log.debug({ what: cause }, "network changed");
      links.check();
      signals.facts.set();
      signals.surroundings.set({ cause });
      overlay.wake();
      signals.session.current?.wake(cause === "resumed" ? "resumed" : "network");
    },
  });
  stack.defer(() => network.close());
  const extra = async (): Promise<Readonly<Record<string, number>>> => ({
    "event.dropped": spool.status().events.dropped,
    "flow.dropped": spool.status().flows.dropped,
    ...(await options.dataPlane.sample(options.stopping)),
    ...options.containers.sample(),
  });
  const stopSampling = startSampling(
    stamps,
    createSampler({ reader, clock: stamps, countHalfOpen: () => countHalfOpen(), extra }),
    (sample) => {
      time.refresh();
      reportClock(time, events);
      spool.append("metrics", sample);
      pusher.push();
      signals.facts.set();
    },
    (error) => log.warn({ err: toError(error) }, "metrics could not be read"),
  );
  stack.defer(stopSampling);
  return network;
}
