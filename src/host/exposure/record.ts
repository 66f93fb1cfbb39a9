import { z } from "zod";
import { Text64, Text128 } from "../../protocol/values/values.ts";
import { reportingDamage, type OnDamage } from "../files/damage.ts";
import type { Files } from "../files/files.ts";
import type { Reader } from "../reader.ts";
import { stateFile, valueOf, type StateFile } from "../files/state-file.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";

const Content = z.object({
  /** Boot id of the following fields (`/proc/sys/kernel/random/boot_id`). */
  boot: Text64,
  /** Whether the engine may have one of our networks. Survives a reboot. */
  hasNetwork: z.boolean(),
  /** Whether the network had its link. A link with another name, as non-Docker engines create, is never reported missing. */
  hadBridge: z.boolean().optional(),
  /** Whether a table, or a rule in the engine's chain, may be ours. */
  hasFirewall: z.boolean(),
  /** Whether a policy rule, a route or a link may be ours. */
  hasRouting: z.boolean(),
  /** The table's listing right after the text with this digest was loaded. */
  firewall: z.object({ digest: Text64, listing: Text64 }).optional(),
  /** The loaded mappings. */
  mapped: z.array(Text128).max(65_536),
});
export type ExposureContent = z.infer<typeof Content>;

/** Record of the changes made for containers, in `STATE/exposure.json`; written before each change. */
export class ExposureRecord {
  readonly #file: StateFile<ExposureContent>;
  readonly #boot: string;
  #content: ExposureContent | undefined;
  readonly #serially = serialQueue();

  constructor(files: Files, reader: Reader, stateDir: string, onDamage?: OnDamage) {
    const file = stateFile(files, { path: `${stateDir}/exposure.json`, schema: Content, keepsPrevious: true });
    this.#file = reportingDamage(file, "exposure.json", onDamage);
    this.#boot = reader.read("/proc/sys/kernel/random/boot_id")?.trim() ?? "";
  }

  /** Returns the content without the parts that a reboot removed. */
  async content(): Promise<ExposureContent> {
    this.#content ??= await this.#load();
    return this.#content;
  }

  /** Changes the content durably, one change at a time; writes nothing if nothing changes. */
  change(part: Partial<ExposureContent>): Promise<void> {
    return this.#serially(() => this.#write(part));
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
    // If the record is lost, anything may be ours.
    const isLost = loaded.is === "lost";
    const fresh = { boot: this.#boot, hasNetwork: isLost, hasFirewall: isLost, hasRouting: isLost, mapped: [] };
    const stored = valueOf(loaded);
    if (stored === undefined) return fresh;
    // Other programs may restore the engine's chain or the table after a reboot.
    if (stored.boot !== this.#boot) return { ...stored, boot: this.#boot, mapped: [], firewall: undefined };
    return stored;
  }
}
