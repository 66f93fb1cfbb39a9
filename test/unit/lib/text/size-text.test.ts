import { expect, test } from "vitest";
import { sizeText } from "../../../../src/lib/text/size-text.ts";

test.each([
  [0, "0 B"],
  [999, "999 B"],
  [1000, "1.0 kB"],
  [450_000_000, "450.0 MB"],
  [999_949_999, "999.9 MB"],
  [999_950_000, "1.0 GB"],
  [9_400_000_000, "9.4 GB"],
  [2e15, "2.0 PB"],
  [5e18, "5000.0 PB"],
])("writes %d bytes as %s", (bytes, text) => {
  expect(sizeText(bytes)).toBe(text);
});
