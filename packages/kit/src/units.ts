/** Bytes and times for people. Binary units only: 1 MiB = 1,048,576 bytes. */

export const KIB = 1024;
export const MIB = 1024 * KIB;
export const GIB = 1024 * MIB;

/** `98362432` → `93.8 MiB` */
export function formatBytes(bytes: number): string {
  for (const [unit, size] of [
    ["GiB", GIB],
    ["MiB", MIB],
    ["KiB", KIB],
  ] as const) {
    if (Math.abs(bytes) >= size) return `${(bytes / size).toFixed(1)} ${unit}`;
  }
  return `${Math.round(bytes)} bytes`;
}

/** `8192` → `8,192` */
export function formatCount(count: number): string {
  return count.toLocaleString("en-US");
}

/** `93784` (seconds) → `1d 2h 3m` */
export function formatDuration(seconds: number): string {
  const parts: string[] = [];
  let rest = Math.floor(seconds);
  for (const [unit, size] of [
    ["d", 86_400],
    ["h", 3600],
    ["m", 60],
  ] as const) {
    if (rest >= size) parts.push(`${Math.floor(rest / size)}${unit}`);
    rest %= size;
  }
  return parts.length > 0 ? parts.join(" ") : `${rest}s`;
}
