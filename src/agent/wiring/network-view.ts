import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { hostConntrack, type Conntrack } from "../../host/network/conntrack.ts";
import type { Exec } from "../../host/process/exec.ts";
import { readAddresses4, readLink } from "../../host/network/ip/links.ts";
import { arpAnnouncer } from "../../host/network/ip/announce.ts";
import { natCounters } from "../../host/network/firewall/nat-counters.ts";
import type { NetworkDriver } from "../../host/network/driver.ts";
import { routeFinder } from "../../host/network/ip/route-to.ts";
import type { Reader } from "../../host/reader.ts";
import type { NetworkReport, RouteAnswer } from "../../protocol/local/network.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { NetworkConfig } from "../../protocol/sections/network/config.ts";
import { trackedNats, type TrackedNat } from "../../protocol/sections/network/nat-tracker.ts";
import { isActiveMember } from "../network/active-member.ts";
import { clusterAddresses } from "../network/cluster-addresses.ts";
import { networkFacts, networkStanding, watchNetworkSection } from "../network/conditions.ts";
import { networkReport } from "../network/report.ts";
import { parsedSections } from "../applying/parsed-sections.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";
import type { Standing } from "../reconcile/section-status.ts";
import type { Desired } from "../shadow/desired.ts";
import type { AgentState } from "../state.ts";
import type { AgentSignals } from "./signals.ts";
import type { EventLog } from "../telemetry/events.ts";
import { startArpAnnouncer } from "../telemetry/conditions/arp-announcer.ts";
import { startArpProbe, type HeldAddress } from "../telemetry/conditions/arp-watch.ts";
import { startNatWatch, type NatWatch } from "../triggers/diagnostics/nat-watch.ts";

export interface NetworkViewOptions {
  readonly clock: Clock;
  readonly exec: Exec;
  /** Starts tools that send raw packets. */
  readonly capture: Pick<Exec, "run">;
  readonly reader: Reader;
  readonly driver: Pick<NetworkDriver, "observe" | "observeNeighbours">;
  readonly log: Logger;
  readonly state: Pick<AgentState, "noteAdjusted">;
  readonly documents: { readonly current: Desired };
  readonly events: EventLog;
  readonly signals: Pick<AgentSignals, "config" | "settled">;
  readonly applying: {
    clusterIssues(): readonly Issue[];
    readonly engine: { readonly standings: readonly Standing[] };
  };
}

/** Readings of this machine's network. */
export interface NetworkView {
  /** The shadow facts about the network, except those of each link. */
  facts(): ShadowMap;
  readonly conntrack: Conntrack;
  /** The names of the links that the applied configuration sets. */
  managedLinks(): ReadonlySet<string>;
  /** The translations of the applied configuration. */
  nats(): readonly TrackedNat[];
  readonly natWatch: NatWatch;
  /** Reads the network of the machine. @throws {HostError} as ip(8) fails. */
  report(signal: AbortSignal): Promise<NetworkReport>;
  /** Returns the route of this machine to an IPv4 address. @throws {HostError} as ip(8) fails. */
  routeTo(address: string, signal: AbortSignal): Promise<RouteAnswer>;
}

/** Opens the readings of the network. No process is started before a reading is requested or hits of translations are counted. */
export function openNetworkView(options: NetworkViewOptions, stack: AsyncDisposableStack): NetworkView {
  const { clock, exec, capture, reader, driver, log, state, events, documents, applying, signals } = options;
  const parsed = parsedSections();
  const section = (): NetworkConfig | undefined => {
    const raw = signals.config.current.network;
    const node = documents.current.node?.body;
    if (raw === undefined || node === undefined || node.type !== "Node") return undefined;
    return parsed.network(raw, node.type, node.cluster !== undefined).config;
  };
  const nats = (): readonly TrackedNat[] => {
    const config = section();
    return config === undefined ? [] : trackedNats(config);
  };
  const natWatch = startNatWatch({
    clock,
    read: natCounters(exec),
    size: () => nats().length,
    onError: (error) => log.debug({ err: toError(error) }, "hits of translations could not be read"),
  });
  const held = (): readonly HeldAddress[] =>
    isActiveMember(documents.current.node?.body) ? heldAddresses(section(), reader) : [];
  const announcer = startArpAnnouncer({
    clock,
    announce: arpAnnouncer(capture),
    held,
    onChange: () => conditions.refresh(),
  });
  const arp = startArpProbe({
    clock,
    exec: capture,
    held,
    onChange: () => conditions.refresh(),
    onError: (error) => log.debug({ err: error }, "the cluster address could not be probed"),
  });
  const conditions = watchNetworkSection({
    clock,
    events,
    standings: () => applying.engine.standings,
    clusterIssues: () => applying.clusterIssues(),
    others: () => [...arp.conditions(), ...announcer.conditions()],
  });
  for (const watch of [conditions, announcer, arp, natWatch]) stack.defer(() => watch.close());
  signals.settled.changed(() => {
    for (const watch of [natWatch, arp, announcer, conditions]) watch.refresh();
  });
  return {
    facts: () =>
      networkFacts(
        documents.current.node?.body.type,
        signals.config.current.network !== undefined,
        networkStanding(applying.engine.standings),
      ),
    conntrack: hostConntrack({ exec, reader, record: state.noteAdjusted }),
    managedLinks: () => {
      const interfaces = section()?.interfaces ?? [];
      const vlans = interfaces.flatMap(({ subInterfaces }) => subInterfaces.map(({ link }) => link));
      return new Set([...interfaces.map(({ nic }) => nic), ...vlans]);
    },
    nats,
    natWatch,
    async report(signal) {
      const observed = await driver.observe({ sysctls: [] }, signal);
      return networkReport({ ...observed, neighbours: await driver.observeNeighbours(signal) });
    },
    routeTo: routeFinder(exec),
  };
}

/** Returns the addresses of the cluster that this member holds. */
function heldAddresses(config: NetworkConfig | undefined, reader: Reader): readonly HeldAddress[] {
  const wanted = config === undefined ? [] : clusterAddresses(config);
  if (wanted.length === 0) return [];
  return readAddresses4(reader).flatMap(({ address, link }) => {
    const isWanted = wanted.some((one) => one.address === address && one.link === link);
    const mac = isWanted ? readLink(reader, link)?.mac : undefined;
    return mac === undefined ? [] : [{ address, link, mac }];
  });
}
