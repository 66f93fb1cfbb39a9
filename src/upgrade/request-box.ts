import { join } from "node:path";
import { toError } from "../errors.ts";
import type { Files } from "../host/files/files.ts";
import { parseStrictJson } from "../lib/formats/strict-json.ts";
import { UpgradeRequest } from "../protocol/documents/release.ts";

/** The requests to the upgrade program: written to one path by the requester, kept at another until done. */
export interface RequestBox {
  /** Removes a request that was taken by an interrupted run before it was removed. */
  settle(): Promise<void>;
  /** Returns the request that was taken and is not done. */
  taken(): Promise<UpgradeRequest | undefined>;
  /** Takes a new request, if there is one; discards an invalid one. */
  take(): Promise<boolean>;
  /** Removes the taken request. */
  done(): Promise<void>;
}

const LIMITS = { maxBytes: 16_384, maxDepth: 4 };
const MODE = 0o600;

/** @param kept the directory in which a request survives a reboot */
export function requestBox(
  files: Files,
  { asked, kept, print }: { readonly asked: string; readonly kept: string; readonly print: (line: string) => void },
): RequestBox {
  const takenAt = join(kept, "request.json");
  return {
    async settle() {
      const [left, text] = [await files.read(asked), await files.read(takenAt)];
      if (left === undefined || text === undefined) return;
      const [again, taken] = [parse(left), parse(text)];
      const isSame = !(again instanceof Error) && JSON.stringify(again) === JSON.stringify(taken);
      if (isSame) await files.remove(asked);
    },
    async taken() {
      const text = await files.read(takenAt);
      if (text === undefined) return undefined;
      const request = parse(text);
      if (!(request instanceof Error)) return request;
      await files.remove(takenAt);
      return undefined;
    },
    async take() {
      const text = await files.read(asked);
      if (text === undefined) return false;
      const request = parse(text);
      if (request instanceof Error) print(`${asked} is not a valid request: ${request.message}`);
      else await files.writeAtomic(takenAt, `${JSON.stringify(request)}\n`, MODE);
      await files.remove(asked);
      return !(request instanceof Error);
    },
    done: () => files.remove(takenAt),
  };
}

function parse(text: string): UpgradeRequest | Error {
  try {
    return UpgradeRequest.parse(parseStrictJson(text, LIMITS));
  } catch (error) {
    return toError(error);
  }
}
