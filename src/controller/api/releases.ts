import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { OpenReleaseFile } from "../../host/releases/release-files.ts";
import { MANIFEST_NAME } from "../../protocol/documents/release.ts";
import { route, type ApiDeps, type Route } from "./route.ts";
import { notFound } from "./shapes.ts";

/** A range of bytes, both ends included. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

const text = (description: string) => ({ description, schema: z.string() });

const HEADERS = {
  etag: text("Of this content alone; for If-Range and If-None-Match"),
  "accept-ranges": text("`bytes`"),
  "last-modified": text("When the file was written"),
};
const BYTES = ["application/octet-stream"] as const;

/** The files of releases. Open to all: nodes trust them by their signatures, and a node that lost its session may need one. */
export function releaseRoutes({ releases }: ApiDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/releases/{name}",
      operationId: "getReleaseFile",
      summary: "A file of a release, by its plain name: `manifest.jws`, or a package that it names. HEAD as well",
      tag: "Releases",
      access: { to: "all" },
      params: z.object({ name: z.string().max(256).meta({ description: "As the manifest has it" }) }),
      answers: {
        200: { description: "The whole file", mediaTypes: BYTES, headers: HEADERS },
        206: {
          description: "The part that Range asks for, as long as If-Range, where it is given, is still the file's ETag",
          mediaTypes: BYTES,
          headers: { ...HEADERS, "content-range": text("Which part, of how many bytes") },
        },
        304: { description: "It is the one of If-None-Match" },
        409: { description: "As many are being fetched as may be" },
        416: { description: "The file has no such part", headers: { "content-range": text("How many bytes it has") } },
        ...notFound,
      },
      async handle({ params: { name }, request }) {
        const file = await releases?.open(name);
        if (file === undefined) throw new InputError("not-found", "there is no such file of a release");
        return answer(file, name, request);
      },
    }),
  ];
}

async function answer(file: OpenReleaseFile, name: string, { method, headers: asked }: Request): Promise<Response> {
  const { size, tag, modifiedAt } = file;
  const etag = `"${tag}"`;
  const headers = {
    etag,
    "last-modified": new Date(modifiedAt).toUTCString(),
    "accept-ranges": "bytes",
    // The manifest's name stays when its content changes; what it names never changes, and is hashed by whoever fetches it.
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
  const about = {
    "content-type": "application/octet-stream",
    "content-length": String(last + 1 - first),
    ...(range === undefined ? {} : { "content-range": `bytes ${first}-${last}/${size}` }),
  };
  const status = range === undefined ? 200 : 206;
  if (method === "HEAD" || size === 0) return empty(status, about);
  return new Response(file.stream(first, last), { status, headers: { ...headers, ...about } });
}

/** The one range that is asked for (RFC 9110 §14.2); undefined for none, several, or what is no range of bytes: all of it is sent then. Pure. */
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
