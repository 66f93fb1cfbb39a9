import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { watchNetwork, type NetworkWatch } from "../../host/network/network-watch.ts";
import type { NetworkChange } from "../../host/network/netlink/netlink.ts";
import type { Reader } from "../../host/reader.ts";
import { countHalfOpen } from "../../host/network/ip/sockets.ts";
import type { MetricSample } from "../../protocol/documents/telemetry.ts";
import { reportedLinks } from "../shadow/facts.ts";
import { readMachine } from "../shadow/readings.ts";
import type { EventLog } from "../telemetry/events.ts";
import { startLinkMonitor } from "../telemetry/conditions/link-health.ts";
import { createSampler, startSampling } from "../telemetry/metrics/metrics.ts";

export interface WatchMachineOptions {
  readonly clock: Clock;
  /** What samples are stamped by. */
  readonly stamps: Clock;
  readonly reader: Reader;
  readonly log: Logger;
  readonly events: EventLog;
  /** The names of the links that the configuration sets. */
  readonly managedLinks: () => ReadonlySet<string>;
  /** Links, addresses, routes or the resolver changed, or the machine was asleep. */
  readonly onNetwork: (what: NetworkChange | "resumed") => void;
  /** Metrics that only the agent knows. */
  readonly extra: () => Promise<Readonly<Record<string, number>>>;
  readonly onSample: (sample: MetricSample) => void;
}

/** Watches links and the network as they change, and takes a sample of the metrics every minute. */
export function watchMachine(options: WatchMachineOptions): NetworkWatch {
  const { clock, stamps, reader, log, events, managedLinks, onNetwork, extra, onSample } = options;
  const links = startLinkMonitor({
    clock,
    events,
    read: () => {
      const machine = readMachine(reader, clock);
      return { links: reportedLinks({ ...machine, managed: managedLinks() }), addresses: machine.addresses };
    },
  });
  const network = watchNetwork({
    clock,
    reader,
    onChange: (what) => {
      log.debug({ what }, "network changed");
      links.check();
      onNetwork(what);
    },
  });
  const stopSampling = startSampling(
    stamps,
    createSampler({ reader, clock: stamps, countHalfOpen: () => countHalfOpen(), extra }),
    onSample,
    (error) => log.warn({ err: toError(error) }, "metrics could not be read"),
  );
  return {
    engine: network.engine,
    close() {
      stopSampling();
      network.close();
      links.close();
    },
  };
}
