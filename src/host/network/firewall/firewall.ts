import { createHash } from "node:crypto";
import { HostError } from "../../../errors.ts";
import type { ExecResult } from "../../process/exec.ts";
import type { FirewallState } from "../state/state.ts";
import type { KernelTables } from "./table-dump.ts";
import { refusal, type ToolRunner } from "../ip/tool.ts";

const COMMENT = /^\tcomment "holdfast:([0-9a-f]{64})"$/m;
/** Prefix of a table read from the kernel, to distinguish it from a listing by nft. */
const KERNEL = "kernel:";
const MARK = /holdfast:([0-9a-f]{64})\0/;

/** Returns the digest of a table's text, as in the table's comment. */
export function firewallDigest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Stores how the loaded text reads back, to detect later edits by others. */
export interface FirewallMemory {
  content(): Promise<{ readonly firewall?: Listed | undefined }>;
  change(part: { readonly firewall: Listed | undefined }): Promise<void>;
}

/** The table's digest and content. */
type Seen = FirewallState;

interface Listed {
  readonly digest: string;
  readonly listing: string;
}

/** One nftables table of the family `inet` (nft(8)), `holdfast` by default. No other table is changed. */
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
   * Reads the table; undefined if there is none, or no nftables.
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
    // If the agent exited between a load and its record, the record is of another text.
    if (digest !== "") await this.#ledger.change({ firewall: { digest, listing: text } });
    return seen;
  }

  /**
   * Replaces the table by the text in one transaction; undefined deletes it. The record of the previous table is kept until nft
   * succeeds.
   * @throws {HostError} `nft-refused` if nft's check rejects the text, `nft-failed` if only the load fails; then nothing is
   *   changed.
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

  /** Reads the table from the kernel, or by nft if the kernel cannot be asked. */
  async #read(signal: AbortSignal): Promise<Seen | undefined> {
    const dump = this.#tables.read(this.#table);
    if (dump === undefined) return this.#list(signal);
    return dump.isThere ? { digest: markOf(dump.comment), text: `${KERNEL}${dump.digest}` } : undefined;
  }

  /** Reads the table as nft lists it. */
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

/** Replaces each location in nft's messages by the number and the text of its line. */
function inWords(result: ExecResult, script: string): ExecResult {
  const lines = script.split("\n");
  const stderr = result.stderr.replaceAll(PLACE, (_place, line: string) => {
    return `line ${line}, ${(lines[Number(line) - 1] ?? "").trim().slice(0, MAX_WORDS)}: `;
  });
  return { ...result, stderr };
}

const PLACE = /^\/dev\/stdin:(\d{1,9}):[0-9-]{1,32}: /gm;
const MAX_WORDS = 200;

/** Returns the digest in a table's comment; empty if there is none. */
function markOf(comment: string): string {
  return MARK.exec(comment)?.[1] ?? "";
}

/** Returns the text with its digest as the table's comment. Accepts only our own table, alone. */
function commented(table: string, text: string): string {
  const head = `table inet ${table} {\n`;
  if (!text.startsWith(head) || !isOneBlock(text)) {
    throw new HostError("nft-refused", `the text is not exactly one table inet ${table}`);
  }
  return `${head}comment "holdfast:${firewallDigest(text)}"\n${text.slice(head.length)}`;
}

/** Reports whether the last character, except blanks, closes the first brace. Ignores braces in quotes. */
function isOneBlock(text: string): boolean {
  // A text may have a megabyte and a quoted comment per element, but few relevant characters.
  const bare = text.replaceAll(/"[^"\n]*"/g, "").trimEnd();
  let depth = 0;
  for (const { 0: found, index } of bare.matchAll(/[{}]/g)) {
    depth += found === "{" ? 1 : -1;
    if (depth === 0) return index + 1 === bare.length;
  }
  return false;
}
