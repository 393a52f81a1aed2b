/** What a person probably meant. */

/** ` (did you mean X?)`, or nothing when no candidate is near. */
export function suggest(word: string, candidates: readonly string[]): string {
  const ranked = candidates.map((candidate) => ({
    candidate,
    distance: editDistance(word.toLowerCase(), candidate.toLowerCase()),
  }));
  const [best] = ranked.sort((x, y) => x.distance - y.distance);
  return best !== undefined && best.distance <= Math.max(2, word.length / 3) ? ` (did you mean ${best.candidate}?)` : "";
}

/** Levenshtein distance: inserted, removed and changed characters. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let line = 1; line <= from.length; line++) {
    const next = [line];
    for (let column = 1; column <= to.length; column++) {
      const changed = (row[column - 1] ?? 0) + (from[line - 1] === to[column - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
