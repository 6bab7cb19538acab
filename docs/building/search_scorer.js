/* The order of search results: headings before words in a text, and the pages that lead a
   user before those to look something up. Sphinx puts this before its search program. */
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    const leads = !page.includes("/") && page !== "index" && page !== "benchmarks";
    return score + (kind === "title" ? 30 : 0) + (leads ? 10 : 0);
  },

  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,

  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
