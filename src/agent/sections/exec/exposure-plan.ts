import type { ExposureChange, ExposureState } from "../../../host/exposure/driver.ts";
import type { FlowFilter } from "../../../host/network/conntrack.ts";
import { firewallDigest } from "../../../host/network/firewall/firewall.ts";
import type { Step } from "../../reconcile/section.ts";
import { mappingName, type ExposureSeen, type ExposureTarget } from "./exposure.ts";

/** A step that changes how containers are reached, or their network. */
export type ExposureStep = Step &
  (
    | {
        readonly kind: "map ports" | "route containers" | "attach interface" | "detach interface";
        readonly change: ExposureChange;
        readonly detail: string;
      }
    | { readonly kind: "remove network"; readonly detail: string }
    /** With the containers attached to the link. */
    | { readonly kind: "restore link"; readonly detail: string; readonly containers: readonly string[] }
  );

export const NOTHING_EXPOSED: ExposureTarget = {
  table: undefined,
  userRules: [],
  ports: [],
  rules: [],
  routes: [],
  links: [],
  waits: [],
};

/** Limit of flows ended in a step, since each needs a process; the others time out. */
const MAX_ENDED = 64;

/** Plans the steps from the observed to the desired exposure; empty if both are equal. Pure. */
export function planExposure(target: ExposureTarget, seen: ExposureSeen): readonly ExposureStep[] {
  return [...routingSteps(target, seen.state), ...portSteps(target, seen), ...linkSteps(target, seen.state)];
}

function portSteps(target: ExposureTarget, { state, addresses }: ExposureSeen): readonly ExposureStep[] {
  if (state.unusable !== undefined) return [];
  const { table, userRules, ports } = target;
  const isLoaded =
    table === undefined ? state.firewall === undefined : state.firewall?.digest === firewallDigest(table);
  if (isLoaded && (state.userRules === undefined || isSameSet(state.userRules, userRules))) return [];
  const mapped = ports.map(mappingName);
  const going = state.mapped.filter((name) => !mapped.includes(name));
  const coming = mapped.filter((name) => !state.mapped.includes(name));
  // Flows of a sender that never pauses keep the translation of their first packet.
  const ended = [...going, ...coming.filter((name) => name.includes(" udp "))]
    .flatMap((name) => flowsOf(name, addresses))
    .slice(0, MAX_ENDED);
  const detail = [...going.map((name) => `− ${textOf(name)}`), ...coming.map((name) => `+ ${textOf(name)}`)];
  const isBack = detail.length === 0;
  return [
    {
      kind: "map ports",
      subject: "ports",
      guarded: false,
      change: { is: "ports", text: table, userRules, mapped, ended },
      detail: isBack ? "restores the table and the rules" : detail.slice(0, 20).join(", "),
    },
  ];
}

function routingSteps({ rules, routes }: ExposureTarget, state: ExposureState): readonly ExposureStep[] {
  const without = (list: readonly string[], other: readonly string[]): readonly string[] =>
    list.filter((one) => !other.includes(one));
  const added = { rules: without(rules, state.rules), routes: without(routes, state.routes) };
  const removed = { rules: without(state.rules, rules), routes: without(state.routes, routes) };
  const detail = [
    ...[removed.rules, removed.routes].flat().map((line) => `− ${line}`),
    ...[added.rules, added.routes].flat().map((line) => `+ ${line}`),
  ];
  if (detail.length === 0) return [];
  return [
    {
      kind: "route containers",
      subject: "routing",
      guarded: false,
      change: { is: "routing", added, removed },
      detail: detail.slice(0, 20).join(", "),
    },
  ];
}

function linkSteps({ links }: ExposureTarget, state: ExposureState): readonly ExposureStep[] {
  const wanted = new Set(links.map(({ link }) => link));
  return [
    ...state.links
      .filter((link) => !wanted.has(link))
      .map((link): ExposureStep => ({
        kind: "detach interface",
        subject: link,
        guarded: false,
        change: { is: "detach", link },
        detail: `takes ${link} away`,
      })),
    ...links
      .filter(({ link }) => !state.links.includes(link))
      .map((virtual): ExposureStep => ({
        kind: "attach interface",
        subject: virtual.link,
        guarded: false,
        change: { is: "attach", virtual },
        detail: `moves ${virtual.inside} into the container`,
      })),
  ];
}

function flowsOf(name: string, addresses: ExposureSeen["addresses"]): readonly FlowFilter[] {
  const [iface = "", protocol = "", port = ""] = name.split(" ");
  return (addresses.get(iface) ?? []).map((dest) => ({
    protocol: protocol === "udp" ? "udp" : "tcp",
    dest,
    destPort: Number(port),
  }));
}

function textOf(name: string): string {
  const [iface = "", protocol = "", port = "", to = ""] = name.split(" ");
  return `${protocol} port ${port} on ${iface} → ${to}`;
}

function isSameSet(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((item) => other.includes(item));
}
