import { z } from "zod";
import { Text64, Text4096 } from "../../../protocol/values/values.ts";
import type { Files } from "../../files/files.ts";
import { reportingDamage, type OnDamage } from "../../files/damage.ts";
import type { Reader } from "../../reader.ts";
import { stateFile, valueOf, type StateFile } from "../../files/state-file.ts";
import { serialQueue } from "../../../lib/async/serial-queue.ts";

const Name = Text64;
const Address = z.object({ link: Name, address: Name });
const Fixed = z.object({ link: Name, speedMbps: z.number(), duplex: z.enum(["full", "half"]) });

/** The name servers before we set them. */
const FormerResolver = z.union([
  z.object({ kind: z.literal("resolved"), link: Name, servers: z.array(Name).max(64) }),
  z.object({
    kind: z.literal("file"),
    /** Content of the file; absent if there was none. */
    text: z.string().max(65_536).optional(),
    mode: z.int().optional(),
    /** Target of the symbolic link in its place. */
    target: Text4096.optional(),
  }),
]);
export type FormerResolver = z.infer<typeof FormerResolver>;

const Content = z.object({
  /** Whether a change was started since nothing was ours. */
  isUsed: z.boolean(),
  /** Boot id of the following fields (`/proc/sys/kernel/random/boot_id`), except the resolver's file. */
  boot: Text64,
  /** Our addresses without a mark. */
  addresses: z.array(Address).max(65_536),
  fixed: z.array(Fixed).max(4096),
  /** The table's listing right after the text with this digest was loaded. */
  firewall: z.object({ digest: Text64, listing: Text64 }).optional(),
  resolver: FormerResolver.optional(),
});
export type LedgerContent = z.infer<typeof Content>;

/** Returns the ledger's file, `STATE/network.json`. */
export function networkLedgerFile(files: Files, stateDir: string, onDamage?: OnDamage): StateFile<LedgerContent> {
  const file = stateFile(files, { path: `${stateDir}/network.json`, schema: Content, keepsPrevious: true });
  return reportingDamage(file, "network.json", onDamage);
}

/** Record of our unmarked network objects; written before each change of the machine. */
export class NetworkLedger {
  readonly #file: StateFile<LedgerContent>;
  readonly #files: Files;
  readonly #dir: string;
  readonly #boot: string;
  #content: LedgerContent | undefined;
  readonly #serially = serialQueue();

  constructor(files: Files, reader: Reader, stateDir: string, onDamage?: OnDamage) {
    this.#file = networkLedgerFile(files, stateDir, onDamage);
    this.#files = files;
    this.#dir = stateDir;
    this.#boot = reader.read("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
  }

  /** Returns the content without the parts that a reboot removed. */
  async content(): Promise<LedgerContent> {
    this.#content ??= await this.#load();
    return this.#content;
  }

  /** Changes the content durably, one change at a time; writes nothing if nothing changes. */
  change(part: Partial<LedgerContent>): Promise<void> {
    return this.#serially(() => this.#write(part));
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
    // If the ledger is lost, anything may be ours.
    const fresh = { isUsed: loaded.is === "lost", boot: this.#boot, addresses: [], fixed: [] };
    if (stored === undefined) return fresh;
    if (stored.boot === this.#boot) return stored;
    const { resolver, isUsed } = stored;
    return { ...fresh, isUsed, ...(resolver?.kind === "file" ? { resolver } : {}) };
  }
}
