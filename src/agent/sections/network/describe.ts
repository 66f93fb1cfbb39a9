import type { NetworkActual } from "./actual.ts";
import type { NetworkStep } from "./plan.ts";

/** Limit of names per kind. */
const MAX_NAMED = 4;
const MAIN_TABLE = "254";

/** Describes a step to an operator: additions, removals, and whether flows end. Pure. */
export function describeNetworkStep(step: NetworkStep, { state }: NetworkActual): string {
  switch (step.kind) {
    case "restore":
      return "restores the previous network";
    case "forget":
      return "removes records of settings that have their original value";
    default:
  }
  const { change } = step;
  switch (change.kind) {
    case "ip":
      return describeLines(change.lines);
    case "nft":
      if (change.text === undefined)
        return "removes the firewall: packets that it blocked pass, and translated flows end";
      return `${state.firewall === undefined ? "loads the firewall" : "replaces the firewall"} atomically; established flows continue`;
    case "sysctl":
      return listed(change.values.map(([name, value]) => `${name} ${formerOf(name, value, state)}→ ${value}`));
    case "ethtool": {
      const { link, fixed } = change;
      const mode = fixed === undefined ? "negotiated" : `${fixed.speedMbps} Mbit/s ${fixed.duplex} duplex`;
      return `${link}: speed and duplex ${mode}; the link goes down for a moment`;
    }
    case "dhcp":
      if (!change.run) return `ends the lease on ${change.link}`;
      return `asks for a lease on ${change.link}${change.withoutGateway === true ? ", without its default route" : ""}`;
    case "resolver":
      return `name servers: ${state.nameServers?.join(" ") ?? "the system's"} → ${change.servers?.join(" ") ?? "the system's"}`;
  }
}

/** Returns the current value of a setting if it differs from the new one. */
function formerOf(name: string, value: string, { sysctls }: NetworkActual["state"]): string {
  const former = sysctls.get(name) ?? "?";
  return former === value ? "" : `${former} `;
}

/** Describes ip(8) lines; more than a few of one kind are counted. */
function describeLines(lines: readonly string[]): string {
  const sorts = new Map<string, string[]>();
  for (const line of lines) {
    const found = wordsOf(line);
    if (found === undefined) continue;
    const [sort, thing] = found;
    sorts.set(sort, [...(sorts.get(sort) ?? []), thing]);
  }
  const parts = [...sorts].map(([sort, things]) => `${sort} ${listed(things)}`);
  const ends = lines.some((line) => line.startsWith("address delete")) ? "; flows of removed addresses end" : "";
  return `${parts.join("; ")}${ends}`;
}

function wordsOf(line: string): readonly [string, string] | undefined {
  const [object = "", verb = "", ...rest] = line.split(" ");
  const after = (name: string): string => rest[rest.indexOf(name) + 1] ?? "";
  const on = rest.includes("dev") ? ` on ${after("dev")}` : "";
  const via = rest.includes("via") ? ` via ${after("via")}` : "";
  switch (`${object} ${verb}`) {
    case "link add":
      return ["makes link", after("name")];
    case "link set": {
      const how = rest.filter((word) => word !== "dev" && word !== after("dev"));
      return ["sets link", `${after("dev")} ${how.join(" ")}`];
    }
    case "link delete":
      return ["removes link", after("dev")];
    case "address replace":
      return ["adds address", `${rest[0]}${on}`];
    case "address delete":
      return ["removes address", `${rest[0]}${on}`];
    case "route append":
      // Routes that the kernel adds with an address are not part of the section.
      return after("proto") === "kernel" ? undefined : ["adds route", routeText(rest, `${via}${on}`, after("table"))];
    case "route prepend":
      return ["adds route", routeText(rest, `${via}${on}`, after("table"))];
    case "route delete":
      return ["removes route", routeText(rest, `${via}${on}`, after("table"))];
    case "rule add":
      return ["adds rule", ruleText(rest)];
    case "rule delete":
      return ["removes rule", ruleText(rest)];
    default:
      return undefined;
  }
}

/** Writes the table unless it is main, and the kind unless it is unicast. */
function routeText([kind = "", destination = ""]: readonly string[], via: string, table: string): string {
  const what = kind === "unicast" ? destination : `${kind} ${destination}`;
  return `${what}${via}${table === MAIN_TABLE ? "" : ` in table ${table}`}`;
}

/** Writes the priority and the selector of a rule, as ip-rule(8) does. */
function ruleText(words: readonly string[]): string {
  const [, priority, ...rest] = words.slice(0, words.indexOf("protocol"));
  return `${priority} (${rest.join(" ")})`;
}

function listed(things: readonly string[]): string {
  if (things.length <= MAX_NAMED) return things.join(", ");
  return `${things.slice(0, MAX_NAMED).join(", ")} and ${things.length - MAX_NAMED} more`;
}
