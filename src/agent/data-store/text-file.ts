import { HostError, toError } from "../../errors.ts";
import type { StorePart } from "../../host/data-store/store.ts";
import { writeAt } from "../../host/files/open-bytes.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { storeRefusal } from "./failures.ts";

/** A file that is being written into the data store from memory; what fails has a code of the platform. */
export interface TextFile {
  /** @throws {HostError} `disk-full` when there is no room for it, `storage-unavailable` */
  append(content: string | Uint8Array): void;
  /** Gives it its name, and tells how many bytes it has. @throws {InputError} `not-found`, `conflict`; {HostError} as `append` */
  publish(): Promise<number>;
  /** Leaves nothing of it. */
  discard(): void;
}

/** Writes into a part of the store, at most so many bytes. */
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
