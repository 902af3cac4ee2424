// Command data writes made-up tables with the columns of the Adult data set, and what GoMLX's
// example makes of them, into the folder that is its argument.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/gomlx/gomlx/examples/adult"
)

func main() {
	dir, r := os.Args[1], rand.New(rand.NewPCG(1, 2))
	load := func(name string, rows int) dataframe.DataFrame {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(table(r, rows)), 0o666); err != nil {
			panic(err)
		}
		return adult.LoadDataFrame(file)
	}
	df := load(adult.AdultDatasetDataFile, 4096)
	adult.PopulateVocabularies(df)
	adult.PopulateQuantiles(df, 100)
	adult.Data.Train = adult.ConvertDataFrameToRawData(df)
	adult.Data.Test = adult.ConvertDataFrameToRawData(load(adult.AdultDatasetTestFile, 256))
	if err := adult.SaveBinaryData(dir, 100); err != nil {
		panic(err)
	}
}

func table(r *rand.Rand, rows int) string {
	one := func(words string) string { w := strings.Fields(words); return w[r.IntN(len(w))] }
	var b strings.Builder
	for range rows {
		age, years, hours := 17+r.IntN(70), 1+r.IntN(16), 1+r.IntN(99)
		gain, label := r.IntN(3)*r.IntN(5000), adult.LabelFalse
		if float64(age)/40+float64(years)/6+float64(hours)/50+float64(gain)/3000+r.NormFloat64() > 5 {
			label = adult.LabelTrue
		}
		fmt.Fprintf(&b, "%d, %s, %d, %s, %d, %s, %s, %s, %s, %s, %d, %d, %d, %s, %s\n", age, one("Private State-gov Federal-gov ?"), 10000+r.IntN(400000),
			one("Bachelors HS-grad Masters 9th Doctorate"), years, one("Divorced Never-married Widowed"), one("Sales Tech-support Craft-repair ?"),
			one("Wife Husband Own-child"), one("White Black Other"), one("Male Female"), gain, r.IntN(2)*r.IntN(2000), hours, one("Cuba Peru France ?"), label)
	}
	return b.String()
}
