import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { HostError } from "../../../errors.ts";
import { HELD_INPUT, type ExecResult } from "../../process/exec.ts";
import type { FirewallState } from "../state/state.ts";
import type { KernelTables } from "./table-dump.ts";
import { refusal, type ToolRunner } from "../ip/tool.ts";

const COMMENT = /^\tcomment "holdfast:([0-9a-f]{64})"$/m;
/** What the kernel has said is told from what nft lists. */
const KERNEL = "kernel:";
const BLOCK_END = "}\n";
const MARK = /holdfast:([0-9a-f]{64})\0/;

/** Names a text of the table, as the table's comment does. */
export function firewallDigest(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Where it is remembered what a text of the table lists as, once it is loaded. */
export interface FirewallMemory {
  content(): Promise<{ readonly firewall?: Listed | undefined }>;
  change(part: { readonly firewall: Listed | undefined }): Promise<void>;
}

/** An nft that waits for what it loads. */
interface Load {
  readonly script: string;
  go(): Promise<ExecResult>;
  /** Ends it. */
  drop(): void;
}

/** A text that was loaded, and the generation of nf_tables that its transaction has made. */
interface Loaded {
  readonly digest: string;
  readonly generation: number;
}

/** The table's mark, and what it looks like. */
type Seen = Required<FirewallState>;

interface Listed {
  readonly digest: string;
  readonly listing: string;
}

/** One table of the family inet of nftables (nft(8)), `holdfast` unless told; no other is touched. */
export class Firewall {
  readonly #tools: ToolRunner;
  readonly #ledger: FirewallMemory;
  readonly #tables: KernelTables;
  readonly #table: string;
  /** Whether there was no table at the last look. */
  #isAbsent = false;
  /** What was loaded last, until it is read back. */
  #loaded: Loaded | undefined;
  #reading: Promise<void> | undefined;
  /** Whether something was changed between the last load and its reading, so that nobody knows what it looks like. */
  #isUnknown = false;
  /** Whether that was so at the last reading. */
  #hasDoubted = false;
  /** The text that has passed the check and is not loaded yet. */
  #passed: { readonly text: string; readonly load: Load } | undefined;

  constructor(tools: ToolRunner, ledger: FirewallMemory, tables: KernelTables, table = "holdfast") {
    this.#tools = tools;
    this.#ledger = ledger;
    this.#tables = tables;
    this.#table = table;
  }

  /**
   * The table as it stands; undefined when there is none, or no nftables. Right after a load the kernel vouches for it: as long as there
   * was no other transaction than ours, it is what was loaded, and `readBack` can wait.
   * @throws {HostError} `nft-failed`.
   */
  async observe(signal: AbortSignal): Promise<FirewallState | undefined> {
    const loaded = this.#loaded;
    if (loaded !== undefined && this.#reading === undefined && this.#tables.generation() === loaded.generation) {
      return { digest: loaded.digest };
    }
    // What could not be noted is noted now.
    if (this.#reading !== undefined) await this.#reading.catch(() => undefined);
    this.#loaded = undefined;
    const dump = this.#dump();
    const seen = dump === undefined ? await this.#list(signal) : dump.seen;
    this.#isAbsent = seen === undefined;
    if (seen === undefined) return undefined;
    const { digest, text } = seen;
    const known = (await this.#ledger.content()).firewall;
    if (known?.digest === digest) {
      if (known.listing === text) return seen;
      // What was noted as nft lists it can still be compared with that.
      const isListed = dump !== undefined && !known.listing.startsWith(KERNEL);
      if (!isListed || (await this.#list(signal))?.text !== known.listing) return { digest: "", text };
    }
    if (this.#isUnknown) return { digest: "", text };
    // Loaded and not looked at since: this is what it looks like.
    if (digest !== "") await this.#ledger.change({ firewall: { digest, listing: text } });
    return seen;
  }

  /** Has what was loaded read, to know it again, once whoever has looked has gone on. */
  readBack(): void {
    const loaded = this.#loaded;
    if (loaded === undefined || this.#reading !== undefined) return;
    this.#reading = setImmediate().then(() => this.#note(loaded));
    this.#reading.catch(() => undefined);
  }

  async #note(loaded: Loaded): Promise<void> {
    const dump = this.#tables.read(this.#table);
    if (this.#loaded !== loaded) return;
    this.#loaded = undefined;
    if (dump?.isThere !== true || markOf(dump.comment) !== loaded.digest) return;
    const isVouched = dump.generation === loaded.generation;
    // It is loaded once more, and no more than that: on some machines there is always somebody who changes tables of their own.
    this.#isUnknown = !isVouched && !this.#hasDoubted;
    this.#hasDoubted = !isVouched;
    if (this.#isUnknown) return;
    await this.#ledger.change({ firewall: { digest: loaded.digest, listing: `${KERNEL}${dump.digest}` } });
  }

  /** Instead of a look, where nothing was ever begun; that there is one all the same shows when the next is checked. */
  presumeAbsent(): Promise<undefined> {
    this.#isAbsent = true;
    return Promise.resolve(undefined);
  }

  /** Checks a text that is loaded next; what is wrong with it is said then. What loads it is started once `others` are. */
  async prepare(text: string, signal: AbortSignal, others: Promise<void> = Promise.resolve()): Promise<void> {
    this.forget();
    try {
      const load = await this.#checked(text, signal, others);
      this.#passed = { text, load };
    } catch {
      // Whoever loads it checks it again, and is told.
    }
  }

  /** Gives up what was prepared. */
  forget(): void {
    this.#passed?.load.drop();
    this.#passed = undefined;
  }

  /**
   * Puts the text in place of the table in one transaction, after nft has checked it and `noted` has come about; without a text the table
   * goes. `onGo` is told when nft has been given all of it.
   * @throws {HostError} `nft-refused` when the check fails, `nft-failed` when what passed it cannot be loaded; then nothing is changed.
   */
  async load(
    text: string | undefined,
    signal: AbortSignal,
    noted: Promise<void> = Promise.resolve(),
    onGo: () => void = () => undefined,
  ): Promise<void> {
    const load = await this.#taken(text, signal);
    try {
      await noted;
      await this.#ledger.change({ firewall: undefined });
    } catch (error) {
      load.drop();
      throw error;
    }
    this.#isAbsent = false;
    this.#loaded = undefined;
    this.#reading = undefined;
    const before = this.#tables.generation();
    const going = load.go();
    onGo();
    const loaded = await going;
    if (loaded.exitCode !== 0) throw refusal("nft-failed", "nft", inWords(loaded, load.script));
    this.#isUnknown = false;
    if (text === undefined || before === undefined) return;
    this.#loaded = { digest: firewallDigest(text), generation: generationAfter(before) };
  }

  /** What loads a text that has passed the check, before or now. */
  #taken(text: string | undefined, signal: AbortSignal): Load | Promise<Load> {
    const passed = this.#passed;
    if (text !== undefined && passed?.text === text) {
      this.#passed = undefined;
      return passed.load;
    }
    this.forget();
    return text === undefined ? this.#waiting(this.#scriptOf(text), signal) : this.#checked(text, signal);
  }

  /** @throws {HostError} `nft-refused` */
  async #checked(text: string, signal: AbortSignal, others: Promise<void> = Promise.resolve()): Promise<Load> {
    const script = this.#scriptOf(text);
    const checking = this.#check(script, signal);
    await Promise.race([others, checking]);
    const load = this.#waiting(script, signal);
    try {
      const checked = await checking;
      if (checked.exitCode === 0) return load;
      if (!this.#isAbsent) throw refusal("nft-refused", "nft", inWords(checked, script));
    } catch (error) {
      load.drop();
      throw error;
    }
    // What was refused may be the making of a table that has come about meanwhile.
    load.drop();
    this.#isAbsent = false;
    return this.#checked(text, signal);
  }

  /**
   * Starting nft and parsing the text take time of their own: both are done while others are waited for. It does nothing before it has
   * read all, and a block without its last brace is an error to it.
   */
  #waiting(script: string, signal: AbortSignal): Load {
    let settle: { readonly give: (script: string) => void; readonly refuse: (error: Error) => void } | undefined;
    const input = new Promise<string>((give, refuse) => (settle = { give, refuse }));
    const held = script.endsWith(BLOCK_END) ? BLOCK_END : script;
    const lead = script.slice(0, -held.length);
    const loaded = this.#tools.run("nft", ["-f", HELD_INPUT], signal, { lead, rest: input });
    // Of one that is dropped nobody wants to know how it ended.
    loaded.catch(() => undefined);
    input.catch(() => undefined);
    return {
      script,
      go() {
        settle?.give(held);
        return loaded;
      },
      drop: () => settle?.refuse(new HostError("nft-refused", "there is nothing to load")),
    };
  }

  /** Where there is no table one is made, which nft refuses if there is: replacing nothing takes it a fifth longer. */
  #scriptOf(text: string | undefined): string {
    const table = `table inet ${this.#table}`;
    const replaced = `add ${table}\ndelete ${table}\n`;
    if (text === undefined) return replaced;
    const begun = this.#isAbsent ? `create ${table} { ${commentOf(text)}; }\n` : replaced;
    return `${begun}${commented(this.#table, text)}`;
  }

  #check(script: string, signal: AbortSignal): Promise<ExecResult> {
    const input = { lead: script, rest: Promise.resolve("") };
    return this.#tools.run("nft", ["-c", "-f", HELD_INPUT], signal, input);
  }

  /** As the kernel says it; undefined where that cannot be asked. */
  #dump(): { readonly seen: Seen | undefined } | undefined {
    const dump = this.#tables.read(this.#table);
    if (dump === undefined) return undefined;
    return {
      seen: dump.isThere ? { digest: markOf(dump.comment), text: `${KERNEL}${dump.digest}` } : undefined,
    };
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

/** Of what nft cannot read a second time it names the place, and not what stands there. */
function inWords(result: ExecResult, script: string): ExecResult {
  const lines = script.split("\n");
  const stderr = result.stderr.replaceAll(PLACE, (_place, line: string) => {
    return `line ${line}, ${(lines[Number(line) - 1] ?? "").trim().slice(0, MAX_WORDS)}: `;
  });
  return { ...result, stderr };
}

const PLACE = new RegExp(`${HELD_INPUT}:(\\d{1,9}):[0-9-]{1,32}: `, "g");
const MAX_WORDS = 200;

/** The digest in a comment as the kernel has it; empty where there is none. */
function markOf(comment: string): string {
  return MARK.exec(comment)?.[1] ?? "";
}

/** The kernel passes over zero. */
function generationAfter(generation: number): number {
  return (generation + 1) >>> 0 || 1;
}

/** The text with its digest as the table's comment. Only a single table is taken, and only ours. */
function commented(table: string, text: string): string {
  const head = `table inet ${table} {\n`;
  if (!text.startsWith(head) || !isOneBlock(text)) {
    throw new HostError("nft-refused", `the text is not the table inet ${table} alone`);
  }
  return `${head}${commentOf(text)}\n${text.slice(head.length)}`;
}

function commentOf(text: string): string {
  return `comment "holdfast:${firewallDigest(text)}"`;
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
