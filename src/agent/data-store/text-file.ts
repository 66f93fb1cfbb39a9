import { HostError, toError } from "../../errors.ts";
import type { StorePart } from "../../host/data-store/store.ts";
import { writeAt } from "../../host/files/open-bytes.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { storeRefusal } from "./failures.ts";

/** A file being written into the data store from memory. Errors have the platform's codes. */
export interface TextFile {
  /** Appends bytes. @throws {HostError} `disk-full`, `storage-unavailable` */
  append(content: string | Uint8Array): void;
  /** Publishes the file and returns its size in bytes. @throws {InputError} `not-found`, `conflict`; {HostError} as `append` */
  publish(): Promise<number>;
  /** Discards the file. */
  discard(): void;
}

/** Writes into a part file up to a maximum size. */
export function textFile(part: StorePart, mostBytes: number): TextFile {
  let bytes = 0;
  return {
    append(given) {
      const content = Buffer.from(given);
      if (bytes + content.length > mostBytes) {
        throw new HostError("disk-full", `the data store has room for no more than ${sizeText(mostBytes)} of it`);
      }
      try {
        writeAt(part.fd, content, 0, content.length, bytes);
      } catch (error) {
        throw storeRefusal(toError(error));
      }
      bytes += content.length;
    },
    async publish() {
      try {
        await part.publish();
      } catch (error) {
        throw storeRefusal(toError(error));
      }
      return bytes;
    },
    discard: () => part.discard(),
  };
}
