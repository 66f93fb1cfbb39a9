import { HostError } from "../../errors.ts";
import { refusal, type ToolRunner } from "../network/ip/tool.ts";

/** Docker's chain for rules of other programs; Docker preserves its content. */
const CHAIN = "DOCKER-USER";
const MARK = "holdfast:containers";
const WAIT = ["-w", "5"] as const;

/** A rule of ours in the syntax of iptables(8), without chain and mark: `-o holdfast0 -m conntrack --ctstate DNAT`. */
export type UserRule = string;

/** Our accept rules in the engine's filter chain, which would otherwise drop the traffic. */
export class UserChain {
  readonly #tools: ToolRunner;

  constructor(tools: ToolRunner) {
    this.#tools = tools;
  }

  /** Returns our rules in order; undefined if the chain does not exist and nothing needs to be accepted. */
  async observe(signal: AbortSignal): Promise<readonly UserRule[] | undefined> {
    try {
      const listed = await this.#tools.run("iptables", [...WAIT, "-S", CHAIN], signal);
      return listed.exitCode === 0 ? listed.stdout.split("\n").flatMap(ruleOf) : undefined;
    } catch (error) {
      if (error instanceof HostError && error.code === "tool-missing") return undefined;
      throw error;
    }
  }

  /**
   * Sets exactly these of our rules in the chain, ahead of the rules of others.
   * @throws {HostError} `iptables-failed`.
   */
  async set(wanted: readonly UserRule[], signal: AbortSignal): Promise<void> {
    const found = await this.observe(signal);
    if (found === undefined) return;
    for (const rule of wanted.filter((one) => !found.includes(one))) await this.#run("-I", rule, signal);
    const kept = new Set<UserRule>();
    for (const rule of found) {
      // Removes duplicates, too.
      if (!wanted.includes(rule) || kept.has(rule)) await this.#run("-D", rule, signal);
      kept.add(rule);
    }
  }

  async #run(how: "-I" | "-D", rule: UserRule, signal: AbortSignal): Promise<void> {
    const words = rule.split(" ");
    const args = [...WAIT, how, CHAIN, ...words, "-m", "comment", "--comment", MARK, "-j", "ACCEPT"];
    const done = await this.#tools.run("iptables", args, signal);
    if (done.exitCode !== 0) throw refusal("iptables-failed", "iptables", done);
  }
}

function ruleOf(line: string): readonly UserRule[] {
  const [head, tail] = [`-A ${CHAIN} `, ` -m comment --comment ${MARK} -j ACCEPT`];
  const bare = line.replaceAll('"', "").trim();
  return bare.startsWith(head) && bare.endsWith(tail) ? [bare.slice(head.length, -tail.length)] : [];
}
