"""KLoB: do locating methods find where a fact lives?"""
