import { z } from "zod";

/** A path in a node's data store, relative to its root whether or not it begins with a slash. The node judges it name by name. */
export const StorePath = z
  .string()
  .min(1)
  .max(4096)
  .refine((text) => !text.includes("\0"), "must hold no NUL")
  .meta({ description: "A path below the root of the data store, with or without a leading slash" });

const Hash = z
  .string()
  .regex(/^[0-9a-fA-F]*$/, "must be hexadecimal digits")
  .max(64);
export const HashAlgorithm = z.enum(["MD5", "SHA1", "SHA-256"]);
export type HashAlgorithm = z.infer<typeof HashAlgorithm>;

/** Hexadecimal digits of each algorithm's value. */
export const HASH_DIGITS: Readonly<Record<HashAlgorithm, number>> = { MD5: 32, SHA1: 40, "SHA-256": 64 };

/**
 * An `http` or `https` address without user and password: what is transferred needs none, and an address is shown in many places.
 * Which addresses a node connects to is its own matter.
 */
export const TransferUrl = z
  .string()
  .max(8192)
  .refine((text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol), "must be an http or https address")
  .refine(
    (text) => !URL.canParse(text) || (new URL(text).username === "" && new URL(text).password === ""),
    "must hold no user name and no password",
  )
  .meta({ description: "An http or https address without user name and password" });

/** `s3://<bucket>/<key>`; the bucket as S3 names general-purpose buckets, the key up to 1024 bytes of UTF-8. */
export const S3Uri = z
  .string()
  .max(4096)
  .refine((text) => parseS3Uri(text) !== undefined, "must be s3://<bucket>/<key>")
  .meta({ description: "`s3://<bucket>/<key>`", examples: ["s3://backups/dump.tar"] });

export interface S3Object {
  readonly bucket: string;
  readonly key: string;
}

/** Returns bucket and key of an `s3:` address, without decoding; undefined for other text. */
export function parseS3Uri(text: string): S3Object | undefined {
  const [, bucket, key] =
    /^s3:\/\/((?!\d+\.\d+\.\d+\.\d+\/)[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9])\/([^\0]+)$/.exec(text) ?? [];
  if (bucket === undefined || key === undefined || bucket.includes("..")) return undefined;
  return Buffer.byteLength(key) <= 1024 ? { bucket, key } : undefined;
}

export const ListFields = { filename: StorePath.optional() } as const;
export const DeleteFields = { filename: StorePath } as const;
export const MkdirFields = { filename: StorePath } as const;
export const HttpDownloadFields = {
  uri: TransferUrl,
  filename: StorePath.meta({ description: "Name of the file" }),
  location: StorePath.default("/").meta({ description: "Directory that the file comes into; made when it is missing" }),
  hash: Hash.optional().meta({ description: "What the file's hash has to be, in hexadecimal digits" }),
  algo: HashAlgorithm.optional().meta({
    description: "Algorithm of `hash`, SHA-256 unless given; without `hash` the value is computed and told",
  }),
} as const;
export const HttpUploadFields = {
  filePath: StorePath,
  uri: TransferUrl,
  multipart: z
    .boolean()
    .default(false)
    .meta({ description: "As `multipart/form-data` with the part `file`, instead of as it is" }),
} as const;
export const S3DownloadFields = {
  uri: S3Uri,
  location: StorePath.meta({ description: "Path of the file, its name included" }),
} as const;
export const S3UploadFields = { filePath: StorePath, bucketDest: S3Uri } as const;
const TaskFields = { id: z.uuid().toLowerCase() } as const;

/** Body of the trigger `datastore-manager`: the bodies of the HTTP API's operations, with the name of one. */
export const DataStoreRequest = z
  .preprocess(
    (raw) => (typeof raw === "object" && raw !== null && !("action" in raw) ? { ...raw, action: "LIST" } : raw),
    z.discriminatedUnion("action", [
      z.strictObject({ action: z.literal("LIST"), ...ListFields }),
      z.strictObject({ action: z.literal("DELETE"), ...DeleteFields }),
      z.strictObject({ action: z.literal("MKDIR"), ...MkdirFields }),
      z.strictObject({ action: z.literal("HTTP_DOWNLOAD"), ...HttpDownloadFields }).superRefine(judgeHash),
      z.strictObject({ action: z.literal("HTTP_UPLOAD"), ...HttpUploadFields }),
      z.strictObject({ action: z.literal("S3_DOWNLOAD"), ...S3DownloadFields }),
      z.strictObject({ action: z.literal("S3_UPLOAD"), ...S3UploadFields }),
      z.strictObject({ action: z.literal("TASKS") }),
      z.strictObject({ action: z.literal("CANCEL"), ...TaskFields }),
      z.strictObject({ action: z.literal("CLEAR"), ...TaskFields }),
      z.strictObject({ action: z.literal("IMAGE_INFO"), filename: StorePath }),
    ]),
  )
  .meta({ id: "DatastoreManager", description: "Body of `datastore-manager`; `LIST` unless it names another action" });
export type DataStoreRequest = z.infer<typeof DataStoreRequest>;

interface Hashed {
  readonly hash?: string | undefined;
  readonly algo?: HashAlgorithm | undefined;
}

/** Adds an issue for `hash` if its length does not match the algorithm. */
export function judgeHash({ hash, algo = "SHA-256" }: Hashed, context: z.RefinementCtx): void {
  if (hash === undefined || hash.length === HASH_DIGITS[algo]) return;
  context.addIssue({ code: "custom", path: ["hash"], message: `must be ${HASH_DIGITS[algo]} digits for ${algo}` });
}

/** A file or directory. A directory that was not listed whole has a last entry of the type `truncated`. */
export interface DataStoreEntry {
  readonly name: string;
  /** Relative to the root, without a leading slash. */
  readonly path: string;
  readonly type: "file" | "directory" | "other" | "truncated";
  /** Human-readable size: `9.4 GB`. */
  readonly size: string;
  readonly bytes: number;
  readonly files?: readonly DataStoreEntry[] | undefined;
}

export const DataStoreEntry: z.ZodType<DataStoreEntry> = z
  .object({
    name: z.string(),
    path: z.string(),
    type: z.enum(["file", "directory", "other", "truncated"]),
    size: z.string(),
    bytes: z.number(),
    get files() {
      return z.array(DataStoreEntry).optional();
    },
  })
  .meta({ id: "DataStoreFile" });

export const DataStoreListing = z.object({ files: z.array(DataStoreEntry) }).meta({ id: "DataStoreListing" });
export type DataStoreListing = z.infer<typeof DataStoreListing>;

export const TaskStatus = z.enum(["Pending", "Running", "Completed", "Failed", "Cancelled"]);
export type TaskStatus = z.infer<typeof TaskStatus>;

/** A transfer, or a deletion that took long. Times in milliseconds since 1970. */
export const DataStoreTask = z
  .object({
    id: z.string(),
    name: z.string().meta({ description: "Kind of work, such as `Transfer HTTP File`" }),
    status: TaskStatus,
    details: z.string().meta({ description: "How far it is, or how it ended, for people" }),
    sTime: z.number(),
    eTime: z.number().optional(),
    progress: z
      .object({
        bytes: z.number(),
        total: z.number().optional(),
        rate: z.number().optional().meta({ description: "Bytes a second" }),
        secondsLeft: z.number().optional(),
      })
      .optional(),
    path: z.string().optional().meta({ description: "The file in the data store" }),
    peer: z.string().optional().meta({ description: "The other end, without what could be a credential" }),
  })
  .meta({ id: "DataStoreTask" });
export type DataStoreTask = z.infer<typeof DataStoreTask>;

export const DataStoreTasks = z.object({ tasks: z.array(DataStoreTask) }).meta({ id: "DataStoreTasks" });
export type DataStoreTasks = z.infer<typeof DataStoreTasks>;

export const TaskStarted = z.object({ id: z.string() }).meta({ id: "DataStoreTaskStarted" });
export type TaskStarted = z.infer<typeof TaskStarted>;

/** Format of a virtual machine image; sizes in bytes. Without `qemu-img` only its size. */
export const ImageInfo = z
  .object({ bytes: z.number(), format: z.string().optional(), virtualBytes: z.number().optional() })
  .meta({ id: "DataStoreImageInfo" });
export type ImageInfo = z.infer<typeof ImageInfo>;

/** Returns an address for output and logs, without query and fragment, which could be credentials as in a pre-signed address. */
export function shownUrl(text: string): string {
  if (!URL.canParse(text)) return "an address that is none";
  const url = new URL(text);
  return `${url.protocol}//${url.host}${url.pathname}${url.search === "" ? "" : "?…"}`;
}
