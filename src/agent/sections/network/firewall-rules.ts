import type { NetworkTarget } from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { PolicyRule } from "../../../protocol/sections/network/config.ts";
import { networkIssue, pathOf, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { endOf, routeOnLink, routeVia } from "./compile-routes.ts";
import type { MarkedTable } from "./compile-rules.ts";
import { byContext, matchText, nameIn, rejectLines, type Chain, MARK_MASK } from "./firewall-text.ts";
import type { Context } from "./contexts.ts";

const MASK = Number(MARK_MASK);
const SHIFT = 20;
const MAX_MARKS = 255;
/** First number of tables for single interfaces, above those of VRFs. */
const FIRST_TABLE = 100_000;

export interface CompiledRules {
  readonly chains: readonly Chain[];
  readonly marked: readonly MarkedTable[];
  readonly routes: NetworkTarget["routes"];
  readonly waits: readonly Issue[];
}

/** Compiles the policy rules: the first match decides where a packet is routed, or that it is dropped. */
export function compilePolicy(
  desired: NetworkDesired,
  actual: NetworkActual,
  contexts: readonly Context[],
): CompiledRules {
  const marks = new Marks(contexts, actual);
  const waits: Issue[] = [];
  const chains: Chain[] = [];
  for (const context of contexts) {
    const path = context.vrf === undefined ? "network" : pathOf(desired, context.vrf);
    const lines: string[] = [];
    for (const rule of context.routing.rules) {
      const done = ruleLines(rule, marks);
      if (typeof done !== "string") lines.push(...done);
      else {
        lines.push(...heldLines(rule));
        const text = `packets that the rule matches are dropped: ${done}`;
        waits.push(networkIssue(`${path}.rules.${rule.index}`, "unsupported", text));
      }
    }
    chains.push({ name: nameIn(context, "steer"), lines });
  }
  const used = new Set(chains.filter(({ lines }) => lines.length > 0).map(({ name }) => name));
  const chainOf = (context: Context): string | undefined => {
    const name = nameIn(context, "steer");
    return used.has(name) ? name : undefined;
  };
  return {
    chains: [
      ...chains,
      {
        name: "steer",
        hook: "filter hook prerouting priority mangle",
        lines: byContext("iifname", contexts, "jump", chainOf, (context) => entriesOf(context, contexts)),
      },
      { name: "steer_dest", hook: "nat hook prerouting priority dstnat - 5", lines: marks.dnats },
      { name: "steer_source", hook: "nat hook postrouting priority srcnat - 5", lines: marks.snats },
    ],
    marked: marks.tables,
    routes: marks.routes,
    waits,
  };
}

/** Returns the links from which packets enter a context: its members, and for the default context also other links that its rules name. */
function entriesOf({ vrf, members, routing }: Context, contexts: readonly Context[]): readonly string[] {
  const own = members.map(({ link }) => link);
  if (vrf !== undefined) return own;
  const known = new Set(contexts.flatMap((one) => one.members.map(({ link }) => link)));
  const named = routing.rules.flatMap((rule) => (rule.in === undefined || known.has(rule.in) ? [] : [rule.in]));
  return [...own, ...new Set(named)];
}

const entryMatch = (rule: PolicyRule): string =>
  [...(rule.in === undefined ? [] : [`iifname "${rule.in}"`]), matchText(rule)].join(" ").trim();

/** Drops what a rule matches, except replies to this machine's own requests. */
function heldLines(rule: PolicyRule): readonly string[] {
  const match = entryMatch(rule);
  return [`${match} ct direction reply fib daddr type local return`.trim(), `${match} drop`.trim()];
}

/** Returns the lines of a rule, or why it is unsupported. */
function ruleLines(rule: PolicyRule, marks: Marks): readonly string[] | string {
  if (rule.dmac !== undefined) return "the destination MAC of routed packets cannot be set";
  const match = entryMatch(rule);
  switch (rule.action) {
    case "hold":
      return heldLines(rule);
    case "accept":
      return [`${match} return`.trim()];
    case "drop":
      return [`${match} drop`.trim()];
    case "reject":
      return rejectLines(match, rule.protocol);
    case "log":
      return [
        `${match} limit rate 10/second log prefix "holdfast${rule.line === undefined ? "" : ` ${rule.line}`}: "`.trim(),
      ];
    case "mirror":
      return "mirror is not supported";
    case "forward":
    case "dnat": {
      const mark = rule.action === "dnat" ? marks.dnat(rule) : marks.forward(rule);
      if (mark.startsWith("!")) return mark.slice(1);
      return [`${match} meta mark set meta mark and ${hex(~MASK >>> 0)} or ${mark} return`.trim()];
    }
  }
}

/** Assigns one mark to each destination. A text that begins with `!` says why there is none. */
class Marks {
  readonly tables: MarkedTable[] = [];
  readonly routes: NetworkTarget["routes"][number][] = [];
  readonly dnats: string[] = [];
  readonly snats: string[] = [];
  readonly #contexts: readonly Context[];
  readonly #actual: NetworkActual;
  readonly #known = new Map<string, number>();

  constructor(contexts: readonly Context[], actual: NetworkActual) {
    this.#contexts = contexts;
    this.#actual = actual;
  }

  forward({ iface, vrf, snat }: PolicyRule): string {
    const key = `forward ${iface ?? ""} ${vrf ?? ""} ${snat}`;
    const table = this.#tableOf(iface, vrf);
    return typeof table === "string"
      ? table
      : this.#mark(key, snat, (mark) => this.tables.push({ mark, mask: MASK, table }));
  }

  dnat({ dnat, snat }: PolicyRule): string {
    const { address = "", port } = dnat ?? {};
    return this.#mark(`dnat ${address} ${port ?? ""} ${snat}`, snat, (mark) => {
      const to =
        port === undefined ? `dnat ip to ${address}` : `meta l4proto { tcp, udp } dnat ip to ${address}:${port}`;
      this.dnats.push(`meta mark and ${MARK_MASK} == ${hex(mark)} counter ${to}`);
    });
  }

  #mark(key: string, snat: boolean, make: (mark: number) => void): string {
    const known = this.#known.get(key);
    if (known !== undefined) return hex(known);
    if (this.#known.size >= MAX_MARKS) return `!rules have more than ${MAX_MARKS} destinations`;
    const mark = (this.#known.size + 1) << SHIFT;
    this.#known.set(key, mark);
    make(mark);
    if (snat) this.snats.push(`meta mark and ${MARK_MASK} == ${hex(mark)} counter masquerade`);
    return hex(mark);
  }

  #tableOf(iface: string | undefined, vrf: string | undefined): number | string {
    if (iface === undefined) {
      const context = this.#contexts.find((one) => (vrf === "default" ? one.vrf === undefined : one.vrf === vrf));
      return context?.table ?? `!there is no VRF ${vrf}`;
    }
    const all = this.#contexts.flatMap(({ members }) => members);
    const member = all.find(({ link }) => link === iface);
    if (member === undefined) return `!${iface} is no interface that is in use`;
    const index = this.#actual.state.links.find(({ name }) => name === iface)?.index ?? 0;
    const table = FIRST_TABLE + index;
    if (!this.routes.some((route) => route.table === table)) {
      const at = { table, metric: 0 };
      const route =
        member.gateway === undefined
          ? routeOnLink("0.0.0.0/0", iface, at)
          : routeVia("0.0.0.0/0", member.gateway, member, at, this.#actual);
      this.routes.push(route, endOf(table));
    }
    return table;
  }
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, "0")}`;
}
