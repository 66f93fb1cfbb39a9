import { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import type { Change } from "./change.ts";
import { diffNetwork, sysctlsOf } from "./diff.ts";
import { NetworkRecord, type RecordStore } from "./state/record.ts";
import { OUR_PROTOCOL, type LinkState, type LinkTarget, type NetworkState, type NetworkTarget } from "./state/state.ts";
import { defined } from "../../lib/defined.ts";

const Fixed = z.object({ speedMbps: z.number(), duplex: z.enum(["full", "half"]) });
const text = z.exactOptional(z.string());
const count = z.exactOptional(z.number());

/** A target in its stored form, plain JSON. */
export const StoredTarget = z.object({
  links: z.array(
    z.object({
      name: z.string(),
      kind: z.exactOptional(z.enum(["vlan", "vrf"])),
      parent: text,
      vlanId: count,
      table: count,
      master: text,
      mtu: count,
      isUp: z.boolean(),
      fixed: z.exactOptional(Fixed),
    }),
  ),
  addresses: z.array(z.object({ link: z.string(), address: z.string(), hasNoRoute: z.exactOptional(z.boolean()) })),
  routes: z.array(
    z.object({
      table: z.number(),
      kind: z.enum(["unicast", "unreachable", "blackhole", "prohibit"]),
      destination: z.string(),
      via: text,
      link: text,
      metric: z.number(),
      scope: z.enum(["global", "site", "link", "host"]),
      isOnLink: z.boolean(),
      source: text,
    }),
  ),
  rules: z.array(
    z.object({
      priority: z.number(),
      from: text,
      to: text,
      inLink: text,
      outLink: text,
      mark: count,
      mask: count,
      table: z.number(),
      suppressLength: count,
    }),
  ),
  firewall: text,
  isExact: z.exactOptional(z.boolean()),
  keepsFirewall: z.exactOptional(z.boolean()),
  sysctls: z.record(z.string(), z.string()),
  dhcp: z.array(z.string()),
  dhcpWithoutGateway: z.exactOptional(z.array(z.string())),
  nameServers: z.exactOptional(z.array(z.string())),
});
export type StoredTarget = z.infer<typeof StoredTarget>;

/** The stored data that reverts a whole pass of the section `network`: the machine and the record before its first step. */
export const NetworkUndo = z.object({
  kind: z.literal("restore"),
  subject: z.string(),
  guarded: z.literal(true),
  target: StoredTarget,
  /** The record at that time: the original settings of adjusted objects. */
  record: NetworkRecord,
});
export type NetworkUndo = z.infer<typeof NetworkUndo>;

/** Converts a target to its stored form. */
export function storeTarget({ sysctls, dhcp, dhcpWithoutGateway, nameServers, ...rest }: NetworkTarget): StoredTarget {
  return {
    ...rest,
    links: [...rest.links],
    addresses: [...rest.addresses],
    routes: [...rest.routes],
    rules: [...rest.rules],
    sysctls: Object.fromEntries(sysctls),
    dhcp: [...dhcp],
    ...(dhcpWithoutGateway === undefined ? {} : { dhcpWithoutGateway: [...dhcpWithoutGateway] }),
    ...(nameServers === undefined ? {} : { nameServers: [...nameServers] }),
  };
}

/** Converts a stored target back. */
export function loadTarget({ sysctls, dhcp, ...rest }: StoredTarget): NetworkTarget {
  return { ...rest, sysctls: new Map(Object.entries(sysctls)), dhcp: new Set(dhcp) };
}

/**
 * Returns the target that reverts the machine to its current state: all our objects, and the current settings of what the target
 * adjusts. `firewall` is the loaded text; if it is unknown, the table stays as it is then. Pure.
 */
export function undoTarget(state: NetworkState, target: NetworkTarget, firewall: string | undefined): NetworkTarget {
  const adjusted = new Set(target.links.map(({ name }) => name));
  return {
    links: state.links.filter(({ name, isOurs }) => isOurs || adjusted.has(name)).map(linkAsIs),
    addresses: state.addresses.flatMap(({ link, address, isOurs, hasNoRoute }) =>
      isOurs ? [{ link, address, ...(hasNoRoute === true ? { hasNoRoute } : {}) }] : [],
    ),
    routes: state.routes.flatMap(({ protocol, ...route }) => (protocol === OUR_PROTOCOL ? [route] : [])),
    rules: state.rules.flatMap(({ protocol, ...rule }) => (protocol === OUR_PROTOCOL ? [rule] : [])),
    ...firewallBefore(state, firewall),
    sysctls: state.sysctls,
    dhcp: state.dhcp,
    ...defined({ dhcpWithoutGateway: state.dhcpWithoutGateway }),
    isExact: true,
    ...defined({ nameServers: state.nameServers }),
  };
}

function linkAsIs({ isOurs, kind, parent, vlanId, table, ...link }: LinkState): LinkTarget {
  const { name, master, mtu, isUp, fixed } = link;
  return {
    name,
    ...(isOurs && (kind === "vlan" || kind === "vrf") ? { kind } : {}),
    ...(isOurs && parent !== undefined ? { parent } : {}),
    ...(isOurs && vlanId !== undefined ? { vlanId } : {}),
    ...(isOurs && table !== undefined ? { table } : {}),
    ...defined({ master }),
    mtu,
    isUp,
    ...defined({ fixed }),
  };
}

function firewallBefore(
  state: NetworkState,
  firewall: string | undefined,
): Pick<NetworkTarget, "firewall" | "keepsFirewall"> {
  if (state.firewall === undefined) return {};
  return firewall === undefined ? { keepsFirewall: true } : { firewall };
}

/** The part of the driver that a restore needs. */
export interface Restorer {
  observe(wanted: { readonly sysctls: Iterable<string> }, signal: AbortSignal): Promise<NetworkState>;
  apply(change: Change, signal: AbortSignal): Promise<void>;
}

const MAX_ROUNDS = 4;

/**
 * Applies changes until the machine matches the target. A failed change does not prevent the others; from the second round on
 * each line is applied separately.
 * @throws {HostError} the first failure of the last round, or `not-restored` if something still differs.
 */
export async function restoreNetwork(driver: Restorer, target: NetworkTarget, signal: AbortSignal): Promise<void> {
  for (let round = 1; ; round += 1) {
    const state = await driver.observe({ sysctls: sysctlsOf(target) }, signal);
    const changes = diffNetwork(state, target);
    if (changes.length === 0) return;
    if (round > MAX_ROUNDS) throw new HostError("not-restored", `the network still differs: ${changes[0]?.kind}`);
    let failure: Error | undefined;
    for (const change of round === 1 ? changes : changes.flatMap(singly)) {
      try {
        await driver.apply(change, signal);
      } catch (error) {
        signal.throwIfAborted();
        failure ??= toError(error);
      }
    }
    if (failure !== undefined && round === MAX_ROUNDS) throw failure;
  }
}

/** Reverts a stored pass: the machine, and then the record. @throws as `restoreNetwork`. */
export async function revertNetwork(
  driver: Restorer,
  record: Pick<RecordStore, "save">,
  undo: NetworkUndo,
  signal: AbortSignal,
): Promise<void> {
  await restoreNetwork(driver, loadTarget(undo.target), signal);
  await record.save(undo.record);
}

function singly(change: Change): readonly Change[] {
  return change.kind === "ip" ? change.lines.map((line) => ({ kind: "ip", lines: [line] })) : [change];
}
