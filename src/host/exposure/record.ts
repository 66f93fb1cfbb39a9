import { z } from "zod";
import { Text64, Text128 } from "../../protocol/values/values.ts";
import { tellingDamage, type OnDamage } from "../files/damage.ts";
import type { Files } from "../files/files.ts";
import type { Reader } from "../reader.ts";
import { stateFile, valueOf, type StateFile } from "../files/state-file.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";

const Content = z.object({
  /** What comes after is of this start of the machine (`/proc/sys/kernel/random/boot_id`). */
  boot: Text64,
  /** The engine may have a network of ours. Outlives the start of the machine. */
  hasNetwork: z.boolean(),
  /** It had its link; one of another name, as engines other than Docker give it, is never missed. */
  hadBridge: z.boolean().optional(),
  /** A table or a rule in a chain of the engine's may be ours. */
  hasFirewall: z.boolean(),
  /** A policy rule, a route or a link may be ours. */
  hasRouting: z.boolean(),
  /** What the table listed as right after the text of this digest was loaded. */
  firewall: z.object({ digest: Text64, listing: Text64 }).optional(),
  /** The mappings in force. */
  mapped: z.array(Text128).max(65_536),
});
export type ExposureContent = z.infer<typeof Content>;

/** What of the machine was made for containers, in `STATE/exposure.json`; written before the machine is touched. */
export class ExposureRecord {
  readonly #file: StateFile<ExposureContent>;
  readonly #boot: string;
  #content: ExposureContent | undefined;
  readonly #inTurn = serialQueue();

  constructor(files: Files, reader: Reader, stateDir: string, onDamage?: OnDamage) {
    const file = stateFile(files, { path: `${stateDir}/exposure.json`, schema: Content, keepsPrevious: true });
    this.#file = tellingDamage(file, "exposure.json", onDamage);
    this.#boot = reader.read("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
  }

  /** What it says; what an earlier start of the machine took with it is left out. */
  async content(): Promise<ExposureContent> {
    this.#content ??= await this.#load();
    return this.#content;
  }

  /** Changes it in one durable step, one after the other; nothing is written when nothing changes. */
  change(part: Partial<ExposureContent>): Promise<void> {
    return this.#inTurn(() => this.#write(part));
  }

  async #write(part: Partial<ExposureContent>): Promise<void> {
    const before = await this.content();
    const after = Content.parse({ ...before, ...part });
    if (JSON.stringify(after) === JSON.stringify(before)) return;
    if (after.hasNetwork || after.hasFirewall || after.hasRouting) await this.#file.save(after);
    else await this.#file.remove();
    this.#content = after;
  }

  async #load(): Promise<ExposureContent> {
    const loaded = await this.#file.load();
    // Of a record that is lost nobody knows that nothing is ours.
    const isLost = loaded.is === "lost";
    const fresh = { boot: this.#boot, hasNetwork: isLost, hasFirewall: isLost, hasRouting: isLost, mapped: [] };
    const stored = valueOf(loaded);
    if (stored === undefined) return fresh;
    // The rules of the engine's chain may be kept over a restart by others; the table may be, too.
    if (stored.boot !== this.#boot) return { ...stored, boot: this.#boot, mapped: [], firewall: undefined };
    return stored;
  }
}
