import { toError } from "../../../errors.ts";
import { Firewall, firewallDigest } from "./firewall.ts";
import { kernelTables, type KernelTables } from "./table-dump.ts";
import type { ToolRunner } from "../ip/tool.ts";

/** The current table for connectors. */
export interface SourceFilterState {
  /** The digest of the loaded text; absent without a table. */
  readonly digest?: string;
  /** Reason why the table cannot be loaded. */
  readonly unusable?: string;
}

/** Drives an optional table: a failed load is reported in the state and not thrown. */
export interface SourceFilterDriver {
  /** Reads the table; only once if none is desired and none exists. */
  observe(wanted: string | undefined, signal: AbortSignal): Promise<SourceFilterState>;
  /** Replaces the table by the text; undefined deletes it. */
  load(text: string | undefined, signal: AbortSignal): Promise<void>;
}

export interface SourceFilterOptions {
  readonly tools: ToolRunner;
  readonly table: string;
  /** Returns the reason why this program may not change the machine's network. */
  readonly unsupported: () => string | undefined;
  /** The kernel's tables by default. */
  readonly tables?: KernelTables;
}

/** Number of passes, at least one a minute, after which a refused table is retried. */
const PASSES_BEFORE_RETRY = 10;

/** Returns a driver of the table through nft(8). */
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
  let refused: { readonly digest: string; readonly reason: string; passes: number } | undefined;

  return {
    async observe(wanted, signal) {
      const reason = unsupported();
      if (reason !== undefined) return { unusable: reason };
      if (wanted === undefined && isAbsent) return {};
      if (refused?.digest === firewallDigest(wanted ?? "") && refused.passes < PASSES_BEFORE_RETRY) {
        refused.passes += 1;
        return { unusable: refused.reason };
      }
      try {
        const found = await firewall.observe(signal);
        isAbsent = found === undefined;
        return found === undefined ? {} : { digest: found.digest };
      } catch (error) {
        signal.throwIfAborted();
        // A program that may not read tables cannot have created one.
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
        refused = { digest: firewallDigest(text ?? ""), reason: toError(error).message, passes: 0 };
      }
    },
  };
}
