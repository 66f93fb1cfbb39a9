import { z } from "zod";
import { Text64, Text4096 } from "../../../protocol/values/values.ts";
import type { Files } from "../../files/files.ts";
import { tellingDamage, type OnDamage } from "../../files/damage.ts";
import type { Reader } from "../../reader.ts";
import { stateFile, valueOf, type StateFile } from "../../files/state-file.ts";
import { serialQueue } from "../../../lib/async/serial-queue.ts";

const Name = Text64;
const Address = z.object({ link: Name, address: Name });
const Fixed = z.object({ link: Name, speedMbps: z.number(), duplex: z.enum(["full", "half"]) });

/** How the name servers were before we set them. */
const FormerResolver = z.union([
  z.object({ kind: z.literal("resolved"), link: Name, servers: z.array(Name).max(64) }),
  z.object({
    kind: z.literal("file"),
    /** What the file said; absent when there was none. */
    text: z.string().max(65_536).optional(),
    mode: z.int().optional(),
    /** What the symbolic link in its place said. */
    target: Text4096.optional(),
  }),
]);
export type FormerResolver = z.infer<typeof FormerResolver>;

const Content = z.object({
  /** A change was begun since nothing here was ours. */
  isUsed: z.boolean(),
  /** What comes after is of this start of the machine (`/proc/sys/kernel/random/boot_id`), except for the resolver's file. */
  boot: Text64,
  /** Addresses that bear no mark. */
  addresses: z.array(Address).max(65_536),
  fixed: z.array(Fixed).max(4096),
  /** What the table listed as right after the text of this digest was loaded. */
  firewall: z.object({ digest: Text64, listing: Text64 }).optional(),
  resolver: FormerResolver.optional(),
});
export type LedgerContent = z.infer<typeof Content>;

/** Where it is kept: `STATE/network.json`. */
export function networkLedgerFile(files: Files, stateDir: string, onDamage?: OnDamage): StateFile<LedgerContent> {
  const file = stateFile(files, { path: `${stateDir}/network.json`, schema: Content, keepsPrevious: true });
  return tellingDamage(file, "network.json", onDamage);
}

/** What of the network is ours and bears no mark; written before the machine is touched. */
export class NetworkLedger {
  readonly #file: StateFile<LedgerContent>;
  readonly #files: Files;
  readonly #dir: string;
  readonly #boot: string;
  #content: LedgerContent | undefined;
  readonly #inTurn = serialQueue();

  constructor(files: Files, reader: Reader, stateDir: string, onDamage?: OnDamage) {
    this.#file = networkLedgerFile(files, stateDir, onDamage);
    this.#files = files;
    this.#dir = stateDir;
    this.#boot = reader.read("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
  }

  /** What it says; what an earlier start of the machine took with it is left out. */
  async content(): Promise<LedgerContent> {
    this.#content ??= await this.#load();
    return this.#content;
  }

  /** Changes it in one durable step, one after the other; nothing is written when nothing changes. */
  change(part: Partial<LedgerContent>): Promise<void> {
    return this.#inTurn(() => this.#write(part));
  }

  async #write(part: Partial<LedgerContent>): Promise<void> {
    const before = await this.content();
    const after = Content.parse({ ...before, ...part });
    if (JSON.stringify(after) === JSON.stringify(before)) return;
    await this.#files.makeDirectory(this.#dir, 0o700);
    await this.#file.save(after);
    this.#content = after;
  }

  async #load(): Promise<LedgerContent> {
    const loaded = await this.#file.load();
    const stored = valueOf(loaded);
    // Of a ledger that is lost nobody knows that nothing is ours.
    const fresh = { isUsed: loaded.is === "lost", boot: this.#boot, addresses: [], fixed: [] };
    if (stored === undefined) return fresh;
    if (stored.boot === this.#boot) return stored;
    const { resolver, isUsed } = stored;
    return { ...fresh, isUsed, ...(resolver?.kind === "file" ? { resolver } : {}) };
  }
}
