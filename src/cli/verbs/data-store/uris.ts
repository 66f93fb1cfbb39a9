import { InputError } from "../../../errors.ts";
import { HASH_DIGITS, HashAlgorithm, parseS3Uri } from "../../../protocol/triggers/data-store.ts";
import type { Call } from "../../frame/verb.ts";

/**
 * The request that fetches what is at a URI. Without a path, or with that of a directory, the file is called as in the URI.
 * @throws {InputError} `usage`.
 */
export function downloadOf(uri: string, path = "/", values: Call["values"] = {}): object {
  const hash = hashOf(values);
  if (isBucket(uri)) {
    if (hash !== undefined) throw new InputError("usage", "of what comes from a bucket no hash is checked");
    return {
      action: "S3_DOWNLOAD",
      uri,
      location: isDirectory(path) ? path + nameOf(uri, parseS3Uri(uri)?.key) : path,
    };
  }
  checkHttp(uri);
  const at = path.lastIndexOf("/") + 1;
  const filename = isDirectory(path) ? nameOf(uri, new URL(uri).pathname) : path.slice(at);
  const location = path.slice(0, at);
  return { action: "HTTP_DOWNLOAD", uri, filename, location: location === "" ? "/" : location, ...hash };
}

/** Returns the request that sends a file to a URI. @throws {InputError} `usage`. */
export function uploadOf(filePath: string, uri: string, multipart: boolean): object {
  if (!isBucket(uri)) {
    checkHttp(uri);
    return { action: "HTTP_UPLOAD", filePath, uri, multipart };
  }
  if (multipart) throw new InputError("usage", "--multipart is for http addresses");
  const isWhole = /^s3:\/\/[^/]+$/.test(uri);
  const bucketDest = isWhole || isDirectory(uri) ? `${uri}${isWhole ? "/" : ""}${nameOf(filePath, filePath)}` : uri;
  return { action: "S3_UPLOAD", filePath, bucketDest };
}

const isBucket = (uri: string): boolean => uri.startsWith("s3:");
const isDirectory = (path: string): boolean => path.endsWith("/");

function checkHttp(uri: string): void {
  if (URL.canParse(uri) && /^https?:$/.test(new URL(uri).protocol)) return;
  throw new InputError("usage", `'${uri.slice(0, 100)}' is no http, https or s3 address`);
}

/** Returns the last name of a path. @throws {InputError} `usage` if the path has none. */
function nameOf(whole: string, path = ""): string {
  const name = decoded(path.slice(path.lastIndexOf("/") + 1));
  if (name !== "") return name;
  throw new InputError("usage", `'${whole.slice(0, 100)}' ends in no name of a file: give a PATH with one`);
}

/** Decodes a percent-encoded name; returns it unchanged if the result is not a file name. */
function decoded(name: string): string {
  if (!name.includes("%")) return name;
  try {
    const text = decodeURIComponent(name);
    return text.includes("/") || text.includes("\0") ? name : text;
  } catch {
    return name;
  }
}

/** Expected hash of the file; its length selects the algorithm. */
function hashOf({ sha256, hash }: Call["values"]): { readonly hash: string; readonly algo: HashAlgorithm } | undefined {
  if (sha256 !== undefined && hash !== undefined) throw new InputError("usage", "give --sha256 or --hash, not both");
  const given = sha256 ?? hash;
  if (given === undefined) return undefined;
  const digits = typeof given === "string" && /^[0-9a-fA-F]+$/.test(given) ? given : "";
  const algo = HashAlgorithm.options.find((one) => HASH_DIGITS[one] === digits.length);
  if (sha256 !== undefined && algo !== "SHA-256") throw new InputError("usage", "--sha256 needs 64 hexadecimal digits");
  if (algo === undefined) throw new InputError("usage", "--hash needs 32, 40 or 64 hexadecimal digits");
  return { hash: digits, algo };
}
