import { z } from "zod";
import { InputError } from "../errors.ts";
import { readPrivateFile } from "../host/files/private-file.ts";

const S3Credentials = z.object({
  accessKeyId: z.string().min(1).max(1024),
  secretAccessKey: z.string().min(1).max(1024),
  sessionToken: z.string().min(1).max(16_384).exactOptional(),
});
export type S3Credentials = z.infer<typeof S3Credentials>;

/**
 * Reads credentials from a file: `{"accessKeyId", "secretAccessKey", "sessionToken"}`, the last one optional. Errors contain no part of
 * the file. @throws {InputError} `bad-secret-file`; {HostError} `storage-failed`
 */
export function readS3Credentials(path: string): S3Credentials {
  const read = S3Credentials.safeParse(jsonOf(readPrivateFile(path)));
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  const field = issue?.path.join(".") ?? "";
  const what = field === "" ? "must be a JSON object" : `${field} must be a text that is not empty`;
  throw new InputError("bad-secret-file", `${path}: ${what}`);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
