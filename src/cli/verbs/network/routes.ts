import { z } from "zod";
import { InputError } from "../../../errors.ts";
import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { READ_SOCKET, RouteQuery } from "../../../protocol/local/api.ts";
import { NetworkReport, RouteAnswer, RouteView, RuleView } from "../../../protocol/local/network.ts";
import { ask } from "../../frame/client.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { wholeOption } from "../../frame/whole-option.ts";
import { COMMON } from "../../frame/verb-options.ts";

/** Output without an address. */
const RouteList = z.object({
  schema: z.literal(1),
  routes: z.array(RouteView),
  rules: z.array(RuleView),
  truncated: NetworkReport.shape.truncated,
});
type RouteList = z.infer<typeof RouteList>;

const MAX_TABLE = 4_294_967_295;
const TABLES: Readonly<Record<number, string>> = { 253: "default", 254: "main", 255: "local" };
/** Names of rtm_protocol (rtnetlink(7)), which identifies the program that made a route. */
const MAKERS: Readonly<Record<number, string>> = {
  2: "kernel",
  3: "boot",
  4: "static",
  9: "ra",
  16: "dhcp",
  186: "bgp",
  188: "ospf",
};

export const routesVerb: Verb = {
  name: "routes",
  summary: "show the IPv4 routes and rules of this machine, and which Holdfast added; or the route to an address",
  about: "A star marks what this agent added. With an address, exits with 1 if there is no route.",
  arguments: [{ name: "address", isRequired: false, help: "the IPv4 address to find the route to", complete: "none" }],
  options: {
    table: { value: "NUMBER", help: "only this routing table (254 is main)" },
    ours: { help: "only those that this agent added" },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast routes 192.0.2.1",
  output: z.union([RouteList, RouteAnswer]),
  async run(call) {
    const to = call.positionals[0];
    return to === undefined ? showRoutes(call) : showRouteTo(call, to);
  },
};

async function showRoutes(call: Call): Promise<ExitClass> {
  const table = wholeOption(call, "table", 1, MAX_TABLE);
  const isOurs = call.values["ours"] === true;
  const report = await ask(call, { method: "GET", path: "/v1/network", socket: READ_SOCKET }, NetworkReport);
  const isWanted = (item: { readonly table: number; readonly isOurs: boolean }): boolean =>
    (table === undefined || item.table === table) && (!isOurs || item.isOurs);
  const { routes, rules, truncated } = report;
  const list: RouteList = { schema: 1, routes: routes.filter(isWanted), rules: rules.filter(isWanted), truncated };
  call.terminal.out(call.settings.isJson ? `${safeJson(list)}\n` : listText(call, plainValue(list)));
  return "ok";
}

async function showRouteTo(call: Call, to: string): Promise<ExitClass> {
  if (!RouteQuery.shape.to.safeParse(to).success) throw new InputError("usage", `'${to}' is not an IPv4 address`);
  const answer = await ask(call, { method: "GET", path: `/v1/route?to=${to}`, socket: READ_SOCKET }, RouteAnswer);
  call.terminal.out(call.settings.isJson ? `${safeJson(answer)}\n` : answerText(plainValue(answer)));
  return ["unicast", "local", "broadcast", "multicast"].includes(answer.kind) ? "ok" : "failed";
}

function listText({ terminal }: Call, { routes, rules, truncated }: RouteList): string {
  const mark = (isOurs: boolean): string => (isOurs ? terminal.style("green", "*") : " ");
  const lines: string[] = [];
  for (const table of [...new Set(routes.map((route) => route.table))].sort(byMainFirst)) {
    lines.push(terminal.style("bold", `table ${tableName(table)}`));
    const own = routes.filter((route) => route.table === table);
    lines.push(...own.map((route) => `${mark(route.isOurs)} ${routeText(route)}`));
  }
  if (rules.length > 0) lines.push(terminal.style("bold", "rules"));
  lines.push(...rules.map((rule) => `${mark(rule.isOurs)} ${ruleText(rule)}`));
  if (routes.length + rules.length === 0) lines.push("no route");
  for (const [what, count] of Object.entries(truncated)) lines.push(`not all: there are ${count} ${what}`);
  return lines.map((line) => `${line}\n`).join("");
}

function byMainFirst(a: number, b: number): number {
  return Number(b === 254) - Number(a === 254) || a - b;
}

function tableName(table: number): string {
  return TABLES[table] ?? String(table);
}

function routeText({ kind, destination, via, link, metric, protocol, source, isOurs, isBehind }: RouteView): string {
  return [
    ...(kind === "unicast" ? [] : [kind]),
    destinationText(destination),
    ...(via === undefined ? [] : ["via", via]),
    ...(link === undefined ? [] : ["dev", link]),
    ...(source === undefined ? [] : ["src", source]),
    ...(metric === 0 ? [] : ["metric", String(metric)]),
    isOurs ? "(holdfast)" : `(${MAKERS[protocol] ?? `protocol ${protocol}`})`,
    ...(isBehind === true ? ["not in force"] : []),
  ].join(" ");
}

function ruleText({ priority, from, to, inLink, outLink, mark, mask, table, suppressLength }: RuleView): string {
  return [
    `${priority}:`,
    `from ${from ?? "all"}`,
    ...(to === undefined ? [] : [`to ${to}`]),
    ...(inLink === undefined ? [] : [`in ${inLink}`]),
    ...(outLink === undefined ? [] : [`out ${outLink}`]),
    ...(mark === undefined ? [] : [`mark 0x${mark.toString(16)}/0x${(mask ?? 0xffff_ffff).toString(16)}`]),
    `table ${tableName(table)}`,
    ...(suppressLength === undefined ? [] : [`but prefixes up to /${suppressLength}`]),
  ].join(" ");
}

function destinationText(destination: string): string {
  return destination === "0.0.0.0/0" ? "default" : destination;
}

const REFUSED: Readonly<Record<string, string>> = {
  none: "no route leads there",
  unreachable: "a route says that it is unreachable",
  prohibit: "a route forbids it",
  blackhole: "a route drops what is sent there",
};

function answerText({ to, kind, via, link, source, table, matched }: RouteAnswer): string {
  const refused = REFUSED[kind];
  if (refused !== undefined) return `${to}: ${refused}\n`;
  if (kind === "local") return `${to} is this machine's own\n`;
  const route = [
    to,
    ...(via === undefined ? ["directly"] : [`via ${via}`]),
    ...(link === undefined ? [] : [`dev ${link}`]),
    ...(source === undefined ? [] : [`src ${source}`]),
  ].join(" ");
  const where = table === undefined ? "" : ` of table ${tableName(table)}`;
  if (matched === undefined) return `${route}${table === undefined ? "" : `, table ${tableName(table)}`}\n`;
  const { destination, metric, isOurs, protocol } = matched;
  const by = isOurs ? "holdfast" : (MAKERS[protocol] ?? `protocol ${protocol}`);
  return `${route}\n  by ${destinationText(destination)}${metric === 0 ? "" : ` metric ${metric}`}${where} (${by})\n`;
}
