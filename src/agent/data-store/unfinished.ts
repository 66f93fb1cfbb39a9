import type { Files } from "../../host/files/files.ts";
import type { TextFile } from "./text-file.ts";

/** Keeps a note on disk that the data store may hold files without a name, which only their writer removes. */
export interface Unfinished {
  /** Notes that a file is begun, until it is published or discarded. @throws as `begin`. */
  hold(begin: () => Promise<TextFile>): Promise<TextFile>;
  /** Reports whether an earlier agent stopped while it wrote one. */
  isLeft(): Promise<boolean>;
  /** Notes that the files of an earlier agent are removed. */
  swept(): void;
}

/** Keeps the note in one file. If the note cannot be written, files are written all the same. */
export function unfinished(
  files: Pick<Files, "read" | "writeAtomic" | "remove">,
  path: string,
  onError: (error: unknown) => void,
): Unfinished {
  let open = 0;
  let isLeft = files.read(path).then(
    (text) => text !== undefined,
    () => false,
  );
  let isNoted = false;
  let last: Promise<void> = isLeft.then((left) => {
    isNoted = left;
  });
  // Writes of the note are serialized, each by the state at its turn.
  const settle = (): Promise<void> => {
    last = last.then(async () => {
      const isNeeded = open > 0 || (await isLeft);
      if (isNeeded === isNoted) return;
      try {
        await (isNeeded ? files.writeAtomic(path, "{}\n", 0o600) : files.remove(path));
        isNoted = isNeeded;
      } catch (error) {
        onError(error);
      }
    });
    return last;
  };
  return {
    async hold(begin) {
      open += 1;
      let isOpen = true;
      const release = (): void => {
        if (isOpen) open -= 1;
        isOpen = false;
        void settle();
      };
      await settle();
      try {
        const file = await begin();
        return {
          append: (content) => file.append(content),
          async publish() {
            const bytes = await file.publish();
            release();
            return bytes;
          },
          discard() {
            file.discard();
            release();
          },
        };
      } catch (error) {
        release();
        throw error;
      }
    },
    isLeft: () => isLeft,
    swept() {
      isLeft = Promise.resolve(false);
      void settle();
    },
  };
}
