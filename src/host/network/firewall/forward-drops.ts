import { HostError } from "../../../errors.ts";
import { asObject, listOf } from "../../../lib/formats/json-shape.ts";
import type { Exec } from "../../process/exec.ts";

const BOUNDS = { deadlineMs: 10_000, maxOutputBytes: 64 * 1024 * 1024 };
const MAX_CHAINS = 16;
/** Rule statements that let every packet continue to the next rule. */
const PASSING = new Set(["counter", "log", "comment"]);
const REFUSING = ["drop", "reject"] as const;

/** Another program's base chain of forwarded packets that refuses what it does not accept. */
export interface ForwardDrop {
  /** Family and name: `ip filter`. */
  readonly table: string;
  readonly chain: string;
  /** The chain's policy, or the verdict of a rule that every packet reaches. */
  readonly by: "policy drop" | "drop" | "reject";
}

type Fields = Readonly<Record<string, unknown>>;

/** Reads the chains. @throws {HostError} `tool-missing`, `exec-failed`. */
export type ReadForwardDrops = (signal: AbortSignal) => Promise<readonly ForwardDrop[]>;

/** Returns a reader that uses one call of nft(8), without set elements. */
export function forwardDrops(exec: Exec): ReadForwardDrops {
  return async (signal) => {
    const listed = await exec.run("nft", ["-j", "-t", "list", "ruleset"], { signal, ...BOUNDS });
    if (listed.exitCode === 0 && !listed.truncated) return parseForwardDrops(listed.stdout);
    const reason = listed.truncated
      ? "its list is too long"
      : (listed.stderr.trim().split("\n")[0] ?? "").slice(0, 512);
    throw new HostError("exec-failed", `nft: ${reason}`, { details: { tool: "nft" } });
  };
}

/** Returns the foreign IPv4 chains of `nft -j list ruleset` (libnftables-json(5)). @throws {HostError} `exec-failed`. */
export function parseForwardDrops(text: string): readonly ForwardDrop[] {
  const objects = listOf(asObject(parse(text))?.["nftables"]);
  const of = (kind: string): readonly Fields[] => objectsOf(objects.map((object) => asObject(object)?.[kind]));
  const rules = of("rule");
  return of("chain")
    .filter(isForeignForward)
    .flatMap((chain): readonly ForwardDrop[] => {
      const { family, table, name } = chain;
      const own = rules.filter(
        (rule) => rule["family"] === family && rule["table"] === table && rule["chain"] === name,
      );
      const end = own.map(verdictOf).find((verdict) => verdict !== undefined);
      const policy = chain["policy"] === "drop" ? "policy drop" : undefined;
      const by = end === undefined ? policy : end === "accept" ? undefined : end;
      return by === undefined ? [] : [{ table: `${String(family)} ${String(table)}`, chain: String(name), by }];
    })
    .slice(0, MAX_CHAINS);
}

function isForeignForward({ hook, type, family, table }: Fields): boolean {
  const isOurs = family === "inet" && table === "holdfast";
  return hook === "forward" && type === "filter" && (family === "ip" || family === "inet") && !isOurs;
}

/** Returns the rule's verdict on every packet; undefined if the rule has conditions or delegates. */
function verdictOf({ expr }: Fields): "accept" | "drop" | "reject" | undefined {
  const statements = objectsOf(listOf(expr));
  const deciding = statements.filter((statement) => !Object.keys(statement).every((name) => PASSING.has(name)));
  const [one] = deciding;
  if (one === undefined || deciding.length > 1) return undefined;
  if ("accept" in one) return "accept";
  return REFUSING.find((name) => name in one);
}

function objectsOf(values: readonly unknown[]): readonly Fields[] {
  return values.map(asObject).filter((value) => value !== undefined);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new HostError("exec-failed", "nft: the output is not JSON", { cause: error });
  }
}
