import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Component } from "./components.ts";

const TEXT = /^(licen[cs]e|copying|notice|copyright)/i;
const README = /^readme(\.md)?$/i;
/** A section of a README from its heading to the next one. */
const SECTION = /^#+\s*licen[cs]e\s*$(.*?)(?=^#+\s|$(?![^]))/ims;

/**
 * Returns the licence text of a package: its files, or the section of its README that has a copyright. Throws if it has none, unless its
 * licence is the project's own.
 */
export function licenceText({ name, licence }: Component, folder: string, own: string): string {
  const all = readdirSync(folder);
  const files = all.filter((file) => TEXT.test(file));
  if (files.length === 0) {
    const readme = all.find((file) => README.test(file));
    const section = readme === undefined ? "" : (SECTION.exec(readFileSync(join(folder, readme), "utf8"))?.[1] ?? "");
    if (/^copyright /im.test(section)) return section.trim();
    if (licence === "Apache-2.0") return own;
    throw new Error(`${name} comes without the text of its licence (${licence})`);
  }
  return files
    .sort()
    .map((file) => readFileSync(join(folder, file), "utf8").trim())
    .join("\n\n");
}

/** `LICENSES`: our own, then each component's. Texts that are the same are there once. */
export function licencesOf(own: string, texts: readonly (readonly [Component, string])[]): string {
  const byText = new Map<string, Component[]>([[own.trim(), []]]);
  for (const [component, text] of texts) {
    const same = byText.get(text.trim());
    if (same === undefined) byText.set(text.trim(), [component]);
    else same.push(component);
  }
  const rule = "=".repeat(80);
  const sections = [...byText].map(([text, components]) => {
    const names = components.map(({ name, version, licence }) => `${name} ${version} (${licence})`);
    const whose = text === own.trim() ? ["Holdfast (Apache-2.0)", ...names] : names;
    return `${rule}\n${whose.join("\n")}\n${rule}\n\n${text}\n`;
  });
  return `Holdfast is delivered with what is listed here, under these licences.\n\n${sections.join("\n")}`;
}
