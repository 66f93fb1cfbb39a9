import { z } from "zod";
import { InputError, toError } from "../../errors.ts";
import type { OpenReleaseFile, ReleaseFiles } from "../../host/releases/release-files.ts";
import { MANIFEST_NAME } from "../../protocol/documents/release.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, Problem } from "../http/shapes.ts";

/** Range of bytes, both ends inclusive. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

const text = (description: string) => ({ description, schema: z.string() });

const HEADERS = {
  etag: text("Identifies the content; for If-Range and If-None-Match"),
  "accept-ranges": text("`bytes`"),
  "last-modified": text("Modification time of the file"),
};
const BYTES = ["application/octet-stream"] as const;

export interface ReleaseRouteDeps {
  /** Undefined if no releases are served. */
  readonly releases?: ReleaseFiles | undefined;
}

/** Routes of release files. Open to all: nodes verify signatures, and a node without a session may need one. */
export function releaseRoutes({ releases }: ReleaseRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/releases/{name}",
      operationId: "getReleaseFile",
      summary: "Get a file of a release by name: `manifest.jws`, or a package that it lists. Also supports HEAD",
      tag: "Releases",
      access: { to: "all" },
      params: z.object({ name: z.string().max(256).meta({ description: "Name in the manifest" }) }),
      answers: {
        200: { description: "The whole file", mediaTypes: BYTES, headers: HEADERS },
        206: {
          description: "The requested range, if If-Range is absent or matches the ETag",
          mediaTypes: BYTES,
          headers: { ...HEADERS, "content-range": text("Range, and size of the file in bytes") },
        },
        304: { description: "The file matches If-None-Match" },
        503: {
          description: "`overloaded`: the limit of concurrent downloads is reached; see `retry-after`",
          schema: Problem,
        },
        416: {
          description: "The range is not within the file",
          headers: { "content-range": text("Size of the file in bytes") },
        },
        ...notFound,
      },
      async handle({ params: { name }, request }) {
        const file = await releases?.open(name).catch(asOverload);
        if (file === undefined) throw new InputError("not-found", "no release file has this name");
        return answer(file, name, request);
      },
    }),
  ];
}

/** @throws {InputError} `overloaded` for `busy`, so that clients try again */
function asOverload(error: unknown): never {
  if (error instanceof InputError && error.code === "busy") throw new InputError("overloaded", error.message);
  throw toError(error);
}

async function answer(file: OpenReleaseFile, name: string, { method, headers: asked }: Request): Promise<Response> {
  const { size, tag, modifiedAt } = file;
  const etag = `"${tag}"`;
  const headers = {
    etag,
    "last-modified": new Date(modifiedAt).toUTCString(),
    "accept-ranges": "bytes",
    // The manifest changes under the same name. Files it names never change, and clients verify their hashes.
    "cache-control": name === MANIFEST_NAME ? "no-cache" : "public, max-age=86400, no-transform",
  };
  const empty = async (status: number, more: Readonly<Record<string, string>> = {}): Promise<Response> => {
    await file.close();
    return new Response(null, { status, headers: { ...headers, ...more } });
  };
  if (tagsOf(asked.get("if-none-match")).some((known) => known === etag || known === "*")) return empty(304);
  const ifRange = asked.get("if-range");
  const range = ifRange === null || ifRange === etag ? rangeOf(asked.get("range"), size) : undefined;
  if (range === "unsatisfiable") return empty(416, { "content-range": `bytes */${size}` });
  const { first, last } = range ?? { first: 0, last: size - 1 };
  const fields = {
    "content-type": "application/octet-stream",
    "content-length": String(last + 1 - first),
    ...(range === undefined ? {} : { "content-range": `bytes ${first}-${last}/${size}` }),
  };
  const status = range === undefined ? 200 : 206;
  if (method === "HEAD" || size === 0) return empty(status, fields);
  return new Response(file.stream(first, last), { status, headers: { ...headers, ...fields } });
}

/** Returns the requested range (RFC 9110 §14.2); undefined for no, several or invalid ranges, which get the whole file. Pure. */
export function rangeOf(header: string | null, size: number): ByteRange | "unsatisfiable" | undefined {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/i.exec(header?.replaceAll(/\s/g, "") ?? "");
  const [, from = "", to = ""] = match ?? [];
  if (match === null || (from === "" && to === "")) return undefined;
  if (from === "") {
    const count = Number(to);
    return count === 0 || size === 0 ? "unsatisfiable" : { first: Math.max(0, size - count), last: size - 1 };
  }
  const first = Number(from);
  const last = to === "" ? size - 1 : Math.min(Number(to), size - 1);
  if (to !== "" && Number(to) < first) return undefined;
  return first >= size ? "unsatisfiable" : { first, last };
}

const tagsOf = (header: string | null): readonly string[] =>
  (header ?? "").split(",").map((tag) => tag.trim().replace(/^W\//, ""));
