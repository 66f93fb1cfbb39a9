declare const HOLDFAST_BUILD: { readonly version: string; readonly build: string } | undefined;

/** Which program this is. `build` is `YYYYMMDD-HHMMSS.<commit>` in a bundle and `source` when run from a checkout. */
export const buildInfo: { readonly version: string; readonly build: string } =
  typeof HOLDFAST_BUILD === "undefined" ? { version: "0.1.0", build: "source" } : HOLDFAST_BUILD;
