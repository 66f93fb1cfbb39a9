import type { Logger } from "pino";
import { toError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import { hostConntrack, type Conntrack } from "../host/conntrack.ts";
import type { Exec } from "../host/exec.ts";
import type { Files } from "../host/files.ts";
import { natCounters } from "../host/network/nat-counters.ts";
import { networkDriver } from "../host/network/driver.ts";
import { routeFinder } from "../host/network/route-to.ts";
import type { Reader } from "../host/reader.ts";
import { valueOf } from "../host/state-file.ts";
import type { Config } from "../protocol/documents.ts";
import type { NetworkReport, RouteAnswer } from "../protocol/local-network.ts";
import { trackedNats, type TrackedNat } from "../protocol/sections/nat-tracker.ts";
import { networkReport } from "./network-report.ts";
import { parsedSections } from "./parsed-sections.ts";
import type { AgentSettings } from "./settings.ts";
import type { Desired } from "./shadow/desired.ts";
import type { AgentState } from "./state.ts";
import { startNatWatch, type NatWatch } from "./triggers/nat-watch.ts";

export interface NetworkViewOptions {
  readonly clock: Clock;
  readonly exec: Exec;
  readonly reader: Reader;
  readonly files: Files;
  readonly settings: Pick<AgentSettings, "unit" | "stateDir" | "runDir">;
  readonly log: Logger;
  readonly state: Pick<AgentState, "adjusted">;
  readonly documents: { readonly current: Desired };
  /** The configuration in force. */
  readonly config: () => Config;
}

/** All of the network of this machine that is looked at and not set. */
export interface NetworkView {
  readonly conntrack: Conntrack;
  /** The translations of the configuration in force. */
  nats(): readonly TrackedNat[];
  readonly natWatch: NatWatch;
  /** Everything there is at this moment. @throws {HostError} as ip(8) fails. */
  report(signal: AbortSignal): Promise<NetworkReport>;
  /** The route that this machine would take to an IPv4 address. @throws {HostError} as ip(8) fails. */
  routeTo(address: string, signal: AbortSignal): Promise<RouteAnswer>;
}

/** Builds what looks at the network; starts no process until it is asked, or has hits to count. */
export function openNetworkView(options: NetworkViewOptions): NetworkView {
  const { clock, exec, reader, files, settings, log, state, documents, config } = options;
  const { stateDir, runDir } = settings;
  const driver = networkDriver({
    exec,
    files,
    reader,
    clock,
    stateDir,
    runDir,
    isManaged: settings.unit !== undefined,
  });
  const parsed = parsedSections();
  const nats = (): readonly TrackedNat[] => {
    const raw = config()["network"];
    const node = documents.current.node?.body;
    if (raw === undefined || node === undefined || node.type !== "Node") return [];
    return trackedNats(parsed.network(raw, node.type, node.cluster !== undefined).config);
  };
  const natWatch = startNatWatch({
    clock,
    read: natCounters(exec),
    size: () => nats().length,
    onError: (error) => log.debug({ err: toError(error) }, "hits of translations could not be read"),
  });
  return {
    conntrack: hostConntrack({
      exec,
      reader,
      // What a setting was before the first change is what it is to be again.
      record: async (former) => state.adjusted.save({ ...former, ...valueOf(await state.adjusted.load()) }),
    }),
    nats,
    natWatch,
    async report(signal) {
      const observed = await driver.observe({ sysctls: [] }, signal);
      return networkReport({ ...observed, neighbours: await driver.observeNeighbours(signal) });
    },
    routeTo: routeFinder(exec),
  };
}
