import { createHash } from "node:crypto";
import { HostError } from "../../../errors.ts";
import type { ExecResult } from "../../process/exec.ts";
import type { FirewallState } from "../state/state.ts";
import type { KernelTables } from "./table-dump.ts";
import { refusal, type ToolRunner } from "../ip/tool.ts";

const COMMENT = /^\tcomment "holdfast:([0-9a-f]{64})"$/m;
/** Prefix of what is read from the kernel, to distinguish it from a listing by nft. */
const KERNEL = "kernel:";
const MARK = /holdfast:([0-9a-f]{64})\0/;

/** Names a text of the table, as the table's comment does. */
export function firewallDigest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Remembers how the loaded text reads back, to detect later edits by others. */
export interface FirewallMemory {
  content(): Promise<{ readonly firewall?: Listed | undefined }>;
  change(part: { readonly firewall: Listed | undefined }): Promise<void>;
}

/** The table's mark, and what it looks like. */
type Seen = FirewallState;

interface Listed {
  readonly digest: string;
  readonly listing: string;
}

/** One table of the family `inet` of nftables (nft(8)), `holdfast` by default; no other is touched. */
export class Firewall {
  readonly #tools: ToolRunner;
  readonly #ledger: FirewallMemory;
  readonly #tables: KernelTables;
  readonly #table: string;

  constructor(tools: ToolRunner, ledger: FirewallMemory, tables: KernelTables, table = "holdfast") {
    this.#tools = tools;
    this.#ledger = ledger;
    this.#tables = tables;
    this.#table = table;
  }

  /**
   * Reads the table; undefined when there is none, or no nftables.
   * @throws {HostError} `nft-failed`.
   */
  async observe(signal: AbortSignal): Promise<FirewallState | undefined> {
    const seen = await this.#read(signal);
    if (seen === undefined) return undefined;
    const { digest, text } = seen;
    const known = (await this.#ledger.content()).firewall;
    if (known?.digest === digest) {
      if (known.listing === text) return seen;
      // A record in the format of nft's listing is compared with a listing.
      const isListed = text.startsWith(KERNEL) && !known.listing.startsWith(KERNEL);
      if (!isListed || (await this.#list(signal))?.text !== known.listing) return { digest: "", text };
    }
    // The record is of another text when the agent ended between the load and its record.
    if (digest !== "") await this.#ledger.change({ firewall: { digest, listing: text } });
    return seen;
  }

  /**
   * Replaces the table by the text in one transaction; without a text deletes it. The record of the table that stood before is kept until
   * nft has succeeded.
   * @throws {HostError} `nft-refused` when nft's check refuses the text, `nft-failed` when only the load fails; then nothing is changed.
   */
  async load(text: string | undefined, signal: AbortSignal): Promise<void> {
    const table = `table inet ${this.#table}`;
    const script = `add ${table}\ndelete ${table}\n${text === undefined ? "" : commented(this.#table, text)}`;
    const loaded = await this.#tools.run("nft", ["-f", "-"], signal, script);
    if (loaded.exitCode !== 0) {
      const checked = await this.#tools.run("nft", ["-c", "-f", "-"], signal, script);
      if (checked.exitCode !== 0) throw refusal("nft-refused", "nft", inWords(checked, script));
      throw refusal("nft-failed", "nft", inWords(loaded, script));
    }
    const seen = await this.#read(signal);
    const isRead = text !== undefined && seen?.digest === firewallDigest(text);
    await this.#ledger.change({ firewall: isRead ? { digest: seen.digest, listing: seen.text } : undefined });
  }

  /** Reads the table from the kernel, or by nft when the kernel cannot be asked. */
  async #read(signal: AbortSignal): Promise<Seen | undefined> {
    const dump = this.#tables.read(this.#table);
    if (dump === undefined) return this.#list(signal);
    return dump.isThere ? { digest: markOf(dump.comment), text: `${KERNEL}${dump.digest}` } : undefined;
  }

  /** As nft lists it. */
  async #list(signal: AbortSignal): Promise<Seen | undefined> {
    try {
      const listed = await this.#tools.run("nft", ["-s", "list", "table", "inet", this.#table], signal);
      if (listed.exitCode === 0)
        return { digest: COMMENT.exec(listed.stdout)?.[1] ?? "", text: firewallDigest(listed.stdout) };
      if (listed.stderr.includes("No such file or directory")) return undefined;
      throw refusal("nft-failed", "nft", listed);
    } catch (error) {
      if (error instanceof HostError && error.code === "tool-missing") return undefined;
      throw error;
    }
  }
}

/** Replaces each place in nft's messages by the number and the text of its line. */
function inWords(result: ExecResult, script: string): ExecResult {
  const lines = script.split("\n");
  const stderr = result.stderr.replaceAll(PLACE, (_place, line: string) => {
    return `line ${line}, ${(lines[Number(line) - 1] ?? "").trim().slice(0, MAX_WORDS)}: `;
  });
  return { ...result, stderr };
}

const PLACE = /^\/dev\/stdin:(\d{1,9}):[0-9-]{1,32}: /gm;
const MAX_WORDS = 200;

/** The digest in a comment as the kernel has it; empty where there is none. */
function markOf(comment: string): string {
  return MARK.exec(comment)?.[1] ?? "";
}

/** The text with its digest as the table's comment. Only a single table is taken, and only ours. */
function commented(table: string, text: string): string {
  const head = `table inet ${table} {\n`;
  if (!text.startsWith(head) || !isOneBlock(text)) {
    throw new HostError("nft-refused", `the text is not the table inet ${table} alone`);
  }
  return `${head}comment "holdfast:${firewallDigest(text)}"\n${text.slice(head.length)}`;
}

/** Whether the first brace is closed by the last character, blanks aside. Braces in quotes do not count. */
function isOneBlock(text: string): boolean {
  // A text can have a megabyte, of which few characters matter, and a quoted comment for every element.
  const bare = text.replaceAll(/"[^"\n]*"/g, "").trimEnd();
  let depth = 0;
  for (const { 0: found, index } of bare.matchAll(/[{}]/g)) {
    depth += found === "{" ? 1 : -1;
    if (depth === 0) return index + 1 === bare.length;
  }
  return false;
}
