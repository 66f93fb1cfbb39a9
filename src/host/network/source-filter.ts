import { toError } from "../../errors.ts";
import { Firewall, firewallDigest } from "./firewall.ts";
import { kernelTables, type KernelTables } from "./table-dump.ts";
import type { ToolRunner } from "./tool.ts";

/** What the machine has as the table for connectors. */
export interface SourceFilterState {
  /** Of the text that is loaded; absent without a table. */
  readonly digest?: string;
  /** Why the table cannot be loaded as it is wanted. */
  readonly unusable?: string;
}

/** A table that helps and is not needed: what cannot be loaded is said, and never fails. */
export interface SourceFilterDriver {
  /** Looks at the table; only once when none is wanted and none is there. */
  observe(wanted: string | undefined, signal: AbortSignal): Promise<SourceFilterState>;
  /** Puts the text in place of the table; without a text the table goes. */
  load(text: string | undefined, signal: AbortSignal): Promise<void>;
}

export interface SourceFilterOptions {
  readonly tools: ToolRunner;
  readonly table: string;
  /** Why this program may not touch the machine's network. */
  readonly unsupported: () => string | undefined;
  /** By default from the kernel itself. */
  readonly tables?: KernelTables;
}

/** What was refused is tried again after so many looks, of which there is one a minute at least. */
const LOOKS_BEFORE_RETRY = 10;

/** Drives the table by nft(8). */
export function sourceFilterDriver({ tools, table, unsupported, tables }: SourceFilterOptions): SourceFilterDriver {
  let listed: { readonly digest: string; readonly listing: string } | undefined;
  const memory = {
    content: () => Promise.resolve({ firewall: listed }),
    change: ({ firewall }: { readonly firewall: typeof listed }) => {
      listed = firewall;
      return Promise.resolve();
    },
  };
  const firewall = new Firewall(tools, memory, tables ?? kernelTables, table);
  let isAbsent = false;
  let refused: { readonly digest: string; readonly reason: string; looks: number } | undefined;

  return {
    async observe(wanted, signal) {
      const reason = unsupported();
      if (reason !== undefined) return { unusable: reason };
      if (wanted === undefined && isAbsent) return {};
      if (refused?.digest === firewallDigest(wanted ?? "") && refused.looks < LOOKS_BEFORE_RETRY) {
        refused.looks += 1;
        return { unusable: refused.reason };
      }
      try {
        const found = await firewall.observe(signal);
        firewall.readBack();
        isAbsent = found === undefined;
        return found === undefined ? {} : { digest: found.digest };
      } catch (error) {
        signal.throwIfAborted();
        // Where nobody may look, nobody could have made one.
        isAbsent = wanted === undefined;
        return wanted === undefined ? {} : { unusable: toError(error).message };
      }
    },
    async load(text, signal) {
      isAbsent = false;
      try {
        await firewall.load(text, signal);
        refused = undefined;
      } catch (error) {
        signal.throwIfAborted();
        refused = { digest: firewallDigest(text ?? ""), reason: toError(error).message, looks: 0 };
      }
    },
  };
}
