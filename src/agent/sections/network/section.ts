import { isDeepStrictEqual } from "node:util";
import { HostError } from "../../../errors.ts";
import type { Change } from "../../../host/network/change.ts";
import { diffNetwork, sysctlsOf } from "../../../host/network/diff.ts";
import { isEmptyRecord, type NetworkRecord, type RecordStore } from "../../../host/network/state/record.ts";
import type { ForwardDrop } from "../../../host/network/firewall/forward-drops.ts";
import { NetworkUndo, revertNetwork } from "../../../host/network/restore.ts";
import { OUR_PROTOCOL, type NetworkState } from "../../../host/network/state/state.ts";
import { isObject } from "../../../protocol/sections/common/forms.ts";
import { readNetwork, type NetworkContext } from "../../../protocol/sections/network/read.ts";
import type { Section } from "../../reconcile/section.ts";
import type { Carrier, NetworkActual, NetworkDesired, NetworkFeatures, Unfixable } from "./actual.ts";
import { sysctlNames } from "./compile.ts";
import { dropNotice, IP_FORWARD, isForwarding, passesOn } from "./forwarding.ts";
import { describeNetworkStep } from "./describe.ts";
import { planNetwork, undoOf, type ChangeStep, type NetworkPlan, type NetworkStep } from "./plan.ts";
import { reportNetwork } from "./report.ts";

export interface NetworkOptions {
  readonly driver: {
    features(signal: AbortSignal): Promise<NetworkFeatures>;
    observe(wanted: { readonly sysctls: Iterable<string> }, signal: AbortSignal): Promise<NetworkState>;
    apply(change: Change, signal: AbortSignal): Promise<void>;
    /** Resolves to whether Holdfast may own anything on the machine. */
    mayOwn(): Promise<boolean>;
    /** Records that Holdfast owns nothing. */
    disown(): Promise<void>;
  };
  /** Record of the machine's original state; it outlives the agent. */
  readonly record: RecordStore;
  /** Socket of the control session, or of the last one. */
  readonly carrier: () => Carrier | undefined;
  /** IPv4 addresses of the gateways that this node dials. */
  readonly gateways?: () => readonly string[];
  /** The `local` addresses of paths to gateways. */
  readonly pathSources?: () => readonly string[];
  readonly context: () => NetworkContext;
  readonly isActiveMember: () => boolean;
  /** Vendor of the machine, as in the shadow's `device`; it decides the default MTU. */
  readonly vendor?: () => string;
  /** Returns known chains of other programs that drop forwarded packets. `isForwarding`: the section forwards packets. */
  readonly forwardDrops?: (isForwarding: boolean) => readonly ForwardDrop[];
  /** Called just before the firewall is read. `isOurs`: it may contain our table. */
  readonly readingTable?: (isOurs: boolean) => void;
  /** Returns why the section is unsupported here, if so. */
  readonly unsupported: () => string | undefined;
}

const DEFAULT_MTU = 1500;
/** Default MTU by cloud. */
const CLOUD_MTUS: ReadonlyMap<string, number> = new Map([
  ["aws", 9000],
  ["azure", 9000],
  ["gcp", 1460],
]);

/** Generous, since a machine may have thousands of routes and DHCP takes time. */
const DEADLINE_MS = 180_000;

const NO_FEATURES: NetworkFeatures = { vlan: false, vrf: false, nft: false, dhcp: false, reasons: new Map() };
const NOTHING: NetworkState = {
  links: [],
  addresses: [],
  routes: [],
  rules: [],
  sysctls: new Map<string, string>(),
  dhcp: new Set<string>(),
};

/** `network`: interfaces, routes, VRFs, translations and the firewall of this machine. */
export function networkSection(options: NetworkOptions): Section<NetworkDesired, NetworkActual, NetworkStep> {
  const {
    driver,
    record,
    carrier,
    context,
    isActiveMember,
    unsupported,
    forwardDrops = () => [],
    gateways = () => [],
    pathSources = () => [],
    readingTable,
  } = options;
  let last:
    | { readonly desired: NetworkDesired; readonly actual: NetworkActual; readonly plan: NetworkPlan }
    | undefined;
  const planOf = (desired: NetworkDesired, actual: NetworkActual): NetworkPlan => {
    if (last?.desired !== desired || last.actual !== actual) {
      last = { desired, actual, plan: planNetwork(desired, actual) };
    }
    return last.plan;
  };
  const defaultMtu = CLOUD_MTUS.get(options.vendor?.() ?? "") ?? DEFAULT_MTU;
  let known: NetworkFeatures | undefined;
  // Only an attempt shows whether a driver can fix a speed.
  let unfixable: ReadonlyMap<string, Unfixable> = new Map();
  return {
    name: "network",
    deadlineMs: DEADLINE_MS,
    stored: NetworkUndo,
    unsupported,
    parse(raw) {
      const { config, rejected, notices, isUnusable = false } = readNetwork(raw, context());
      return { desired: { config, paths: pathsOf(raw), memo: new WeakMap() }, rejected, notices, isUnusable };
    },
    async observe(signal, desired) {
      const noted = await record.load();
      const mayOwn = await driver.mayOwn();
      const reached = { carrier: carrier(), gateways: gateways(), pathSources: pathSources() };
      const inputs = { record: noted, ...reached, isActiveMember: isActiveMember(), unfixable, defaultMtu };
      // An idle agent starts no process: nothing is desired and nothing was ever applied.
      if (desired?.config.isPresent === false && !mayOwn && isEmptyRecord(noted)) {
        readingTable?.(false);
        return { state: NOTHING, features: NO_FEATURES, forwardDrops: forwardDrops(false), ...inputs };
      }
      known ??= await driver.features(signal);
      readingTable?.(mayOwn);
      const state = await driver.observe({ sysctls: sysctlNames(desired?.config, noted) }, signal);
      if (desired?.config.isPresent === false && isEmptyRecord(noted) && isBare(state)) await driver.disown();
      return { state, features: known, forwardDrops: forwardDrops(isForwarding(state)), ...inputs };
    },
    plan: (desired, actual) => planOf(desired, actual).steps,
    // Leases, sessions and a forwarding switch of other programs change by themselves and are not drift.
    asSurrounded: (actual, before) => ({
      ...actual,
      carrier: before.carrier,
      gateways: before.gateways,
      pathSources: before.pathSources,
      isActiveMember: before.isActiveMember,
      state: {
        ...actual.state,
        sysctls: forwardingAsBefore(actual, before),
        leases: before.state.leases ?? {},
        addresses: [
          ...actual.state.addresses.filter(({ isDynamic }) => !isDynamic),
          ...before.state.addresses.filter(({ isDynamic }) => isDynamic),
        ],
      },
    }),
    describe: describeNetworkStep,
    undo: undoOf,
    async apply(step, signal) {
      switch (step.kind) {
        case "forget":
          return record.save(step.after);
        case "restore":
          return revertNetwork(driver, record, step, signal);
        default:
          if (step.before !== undefined) await keep(step.before);
          await applyChange(step, signal);
          if (step.after !== undefined) await keep(step.after);
      }
    },
    report: ({ state, features }) => reportNetwork(state, features),
    waits: (desired, actual) => planOf(desired, actual).waits,
    notices: (desired, actual) => [
      ...planOf(desired, actual).notices,
      ...(passesOn(desired.config) ? actual.forwardDrops.map(dropNotice) : []),
    ],
    unproven: (desired, actual) => planOf(desired, actual).unproven,
    undetermined: (desired, actual) => planOf(desired, actual).undetermined,
  };

  /** After an interrupted or repeated batch some lines are applied already: plan the rest once more. */
  async function applyChange({ change, target }: ChangeStep, signal: AbortSignal): Promise<void> {
    try {
      await driver.apply(change, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (change.kind === "ethtool" && change.fixed !== undefined && isUnsupported(error)) {
        unfixable = new Map([...unfixable, [change.link, { ...change.fixed, reason: error.message }]]);
        return;
      }
      if (change.kind !== "ip") throw error;
      const state = await driver.observe({ sysctls: sysctlsOf(target) }, signal);
      const left = diffNetwork(state, target).find(({ kind }) => kind === "ip");
      if (left === undefined) return;
      if (isDeepStrictEqual(left, change)) throw error;
      await driver.apply(left, signal);
    }
  }

  async function keep(wanted: NetworkRecord): Promise<void> {
    if (!isDeepStrictEqual(await record.load(), wanted)) await record.save(wanted);
  }
}

/** Returns the sysctls with the previous forwarding value unless the section has set it. */
function forwardingAsBefore({ state, record }: NetworkActual, before: NetworkActual): NetworkState["sysctls"] {
  const former = before.state.sysctls.get(IP_FORWARD);
  if (former === undefined || Object.hasOwn(record.sysctls, IP_FORWARD)) return state.sysctls;
  return new Map([...state.sysctls, [IP_FORWARD, former]]);
}

function isUnsupported(error: unknown): error is HostError {
  return error instanceof HostError && error.code === "unsupported";
}

/** Reports whether Holdfast owns nothing on the machine. */
function isBare({ links, addresses, routes, rules, firewall, dhcp, nameServers }: NetworkState): boolean {
  const isOurs = links.some((link) => link.isOurs) || addresses.some((address) => address.isOurs);
  const isMarked = [...routes, ...rules].some(({ protocol }) => protocol === OUR_PROTOCOL);
  return !isOurs && !isMarked && firewall === undefined && dhcp.size === 0 && nameServers === undefined;
}

/** Maps names of interfaces, VLANs and VRFs to their JSON paths. */
function pathsOf(raw: unknown): ReadonlyMap<string, string> {
  const paths = new Map<string, string>();
  const note = (name: unknown, path: string): void => {
    if (typeof name === "string" && !paths.has(name)) paths.set(name, path);
  };
  for (const [path, fields] of entriesOf(raw, "network", "interfaces")) {
    note(fields["nic"], path);
    for (const [inner, vlan] of entriesOf(fields, path, "subInterfaces")) {
      note(`${String(fields["nic"])}.${String(vlan["vlanID"])}`, inner);
    }
  }
  for (const [path, fields] of entriesOf(raw, "network", "vrfs")) note(fields["name"], path);
  return paths;
}

function entriesOf(
  value: unknown,
  path: string,
  name: string,
): readonly (readonly [string, Record<string, unknown>])[] {
  const list = isObject(value) ? value[name] : undefined;
  if (!Array.isArray(list)) return [];
  return list.flatMap((fields: unknown, index) =>
    isObject(fields) ? [[`${path}.${name}.${index}`, fields] as const] : [],
  );
}
